package inject

import (
	"fmt"
	"slices"
	"strings"

	"github.com/weftmesh/weft/services/injector/internal/decide"
)

// Reasons why an object gets no proxy; the words are Linkerd's, but for
// WindowsPod.
const (
	HostNetwork        = decide.HostNetwork
	SidecarExists      = decide.SidecarExists
	WindowsPod         = decide.WindowsPod
	DisabledAtWorkload = decide.DisabledAtWorkload
	NoAccountToken     = decide.NoAccountToken
	Unsupported        = "unsupported_resource"
)

// Outcome is what happened to one object.
type Outcome string

// Outcomes.
const (
	// Unchanged: there was nothing to do.
	Unchanged Outcome = "unchanged"
	// Annotated: a Namespace or Service has annotations now; a workload asks the
	// webhook for its proxy now.
	Annotated Outcome = "annotated"
	// Injected: the proxy is in the manifest.
	Injected Outcome = "injected"
	// Skipped: Reasons say why there is no proxy.
	Skipped Outcome = "skipped"
	// Uninjected: proxy, annotations or labels of the mesh are gone.
	Uninjected Outcome = "uninjected"
)

// Report is on one object.
type Report struct {
	// Kind is lower case; Name may be empty (generateName).
	Kind, Name string
	Outcome    Outcome
	// Reasons against a proxy, all of them.
	Reasons []string
	// UDP: a container declares a UDP port; the mesh carries TCP only.
	UDP bool
	// Warnings name annotations that could not be understood.
	Warnings []string
}

// Object is kind and name, as a person would type them.
func (r Report) Object() string {
	if r.Name == "" {
		return r.Kind
	}
	return r.Kind + "/" + r.Name
}

// blocking are the reasons that nobody asked for: a pod that was to be in the
// mesh can't be.
var blocking = []string{HostNetwork, SidecarExists, NoAccountToken}

var texts = map[string]string{
	HostNetwork:    "hostNetwork is enabled: the pod's traffic is the node's and cannot be redirected",
	SidecarExists:  "there is a sidecar of this or another mesh already",
	NoAccountToken: "the service account's token is not mounted, and without it the proxy gets no identity",
}

// Refusal is the error for an object that was to get a proxy and cannot have one.
type Refusal struct{ Report Report }

// Error names the object and why.
func (e *Refusal) Error() string {
	var why []string
	for _, r := range e.Report.Reasons {
		if text, ok := texts[r]; ok {
			why = append(why, text)
		}
	}
	return fmt.Sprintf("%s cannot be injected: %s", e.Report.Object(), strings.Join(why, "; "))
}

// refused is the error of a report, if its reasons are such. Nothing is wrong
// with a workload that doesn't want a proxy.
func refused(r Report) error {
	if slices.Contains(r.Reasons, DisabledAtWorkload) {
		return nil
	}
	if slices.ContainsFunc(r.Reasons, func(reason string) bool { return slices.Contains(blocking, reason) }) {
		return &Refusal{r}
	}
	return nil
}
