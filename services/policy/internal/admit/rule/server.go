package rule

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	"github.com/weftmesh/weft/services/policy/internal/derive"
)

type serverSpec struct {
	PodSelector              *selector `json:"podSelector"`
	ExternalWorkloadSelector *selector `json:"externalWorkloadSelector"`
	Port                     *port     `json:"port"`
	ProxyProtocol            *string   `json:"proxyProtocol"`
	AccessPolicy             *string   `json:"accessPolicy"`
}

// protocols are those of Server.spec.proxyProtocol.
var protocols = [...]string{"unknown", "HTTP/1", "HTTP/2", "gRPC", "opaque", "TLS"}

// server does not compare with other Servers: where several select a port, the
// oldest holds. Source: spec/identity-injector-mirror.md §6.
func server(f *finder, _ head, s serverSpec) {
	switch {
	case s.PodSelector == nil && s.ExternalWorkloadSelector == nil:
		f.bad("spec.podSelector", "is missing", "a Server selects either pods or external workloads", "add podSelector or externalWorkloadSelector; {} selects all of the namespace")
	case s.PodSelector != nil && s.ExternalWorkloadSelector != nil:
		f.bad("spec.externalWorkloadSelector", "is there beside podSelector", "a Server selects either pods or external workloads", "keep one of them, and write a second Server for the other")
	}
	s.PodSelector.check(f, "spec.podSelector")
	s.ExternalWorkloadSelector.check(f, "spec.externalWorkloadSelector")
	if s.Port == nil {
		f.bad("spec.port", "is missing", "a Server is about one port", "add its number, or its name in the container")
	}
	if s.ProxyProtocol != nil && !slices.Contains(protocols[:], *s.ProxyProtocol) {
		f.bad("spec.proxyProtocol", "is "+quote(*s.ProxyProtocol), "it must be one of "+list(protocols[:]), "use unknown to have it detected")
	}
	if s.AccessPolicy != nil {
		if _, err := derive.ParseDefaultPolicy(*s.AccessPolicy); err != nil {
			f.bad("spec.accessPolicy", "is "+quote(*s.AccessPolicy), "it must be one of deny, audit, all-unauthenticated, all-authenticated, cluster-unauthenticated and cluster-authenticated",
				"use deny, and an AuthorizationPolicy for those who may connect")
		}
	}
}

// port is a number or a name.
type port struct{}

// UnmarshalJSON refuses what is neither.
func (*port) UnmarshalJSON(raw []byte) error {
	var number uint16
	var name string
	if json.Unmarshal(raw, &number) == nil && number > 0 || json.Unmarshal(raw, &name) == nil && name != "" {
		return nil
	}
	return &fieldError{"port", "is " + quote(string(bytes.TrimSpace(raw))) + ", neither a number from 1 to 65535 nor a port's name"}
}

// selector is a label selector.
type selector struct {
	MatchLabels      map[string]string `json:"matchLabels"`
	MatchExpressions []struct {
		Key      string   `json:"key"`
		Operator string   `json:"operator"`
		Values   []string `json:"values"`
	} `json:"matchExpressions"`
}

// check judges the operators, since one that is not known would select nothing.
func (s *selector) check(f *finder, field string) {
	if s == nil {
		return
	}
	for i, e := range s.MatchExpressions {
		here := at(field+".matchExpressions", i)
		f.need(here+".key", e.Key, "a label's name")
		if known := []string{"In", "NotIn", "Exists", "DoesNotExist"}; !slices.Contains(known, e.Operator) {
			f.bad(here+".operator", "is "+quote(e.Operator), "it must be one of "+list(known), "use In with the values that you mean")
		}
	}
}

// list is words with commas and an "and".
func list(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:len(words)-1], ", ") + " and " + words[len(words)-1]
}
