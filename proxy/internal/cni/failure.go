package cni

import (
	"errors"

	"github.com/weftmesh/weft/services/kit/say"
)

// Codes of the CNI specification; from 100 on they are ours.
const (
	codeVersion  = 1
	codeEnv      = 4
	codeIO       = 5
	codeDecode   = 6
	codeConfig   = 7
	codeAgain    = 11
	codeNotReady = 50 // STATUS: ADD would fail now
	codeKernel   = 100
)

// failure is an error with a code of the specification.
type failure struct {
	code int
	*say.Problem
}

func (f *failure) Unwrap() error { return f.Problem }

func fail(code int, what, why, next string) error {
	return &failure{code, &say.Problem{What: what, Why: why, Next: next}}
}

// object is an error as the specification has it on standard output. The runtime
// shows msg and details in the pod's events.
type object struct {
	CNIVersion string `json:"cniVersion"`
	Code       int    `json:"code"`
	Msg        string `json:"msg"`
	Details    string `json:"details,omitempty"`
}

func describe(version string, err error) object {
	o := object{CNIVersion: version, Code: codeIO, Msg: "linkerd-cni: " + err.Error()}
	if p, ok := errors.AsType[*say.Problem](err); ok {
		o.Code, o.Msg, o.Details = codeKernel, "linkerd-cni: "+p.What, p.Why
		if p.Code > 0 {
			o.Code = codeConfig // of redirection settings
		}
		if p.Next != "" {
			o.Details += "; next: " + p.Next
		}
	}
	if f, ok := errors.AsType[*failure](err); ok {
		o.Code = f.code
	}
	return o
}
