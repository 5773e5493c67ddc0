package rule

import (
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/weftmesh/weft/services/policy/internal/derive"
)

type routeSpec struct {
	ParentRefs []parent   `json:"parentRefs"`
	Rules      []httpRule `json:"rules"`
}

type parent struct {
	reference
	Port *int32 `json:"port"`
}

type httpRule struct {
	Matches     []httpMatch `json:"matches"`
	Filters     []filter    `json:"filters"`
	BackendRefs []backend   `json:"backendRefs"`
	Timeouts    *struct {
		Request        *string `json:"request"`
		BackendRequest *string `json:"backendRequest"`
	} `json:"timeouts"`
}

type backend struct {
	reference
	Port    *int32   `json:"port"`
	Filters []filter `json:"filters"`
}

// policyRoute judges an HTTPRoute of Linkerd's group.
func policyRoute(f *finder, h head, s routeSpec) {
	outbound(f, h, s.ParentRefs)
	for i, r := range s.Rules {
		here := at("spec.rules", i)
		r.check(f, here, true)
		if r.Timeouts == nil {
			continue
		}
		request := timeout(f, here+".timeouts.request", r.Timeouts.Request)
		backend := timeout(f, here+".timeouts.backendRequest", r.Timeouts.BackendRequest)
		// A request timeout of zero is none. Source: the Gateway API's HTTPRouteTimeouts.
		if request > 0 && backend > request {
			f.bad(here+".timeouts.backendRequest", "is "+backend.String(), "the whole request may take only "+request.String(), "make it at most as long as timeouts.request")
		}
	}
}

// httpRoute judges an HTTPRoute of the Gateway API.
func httpRoute(f *finder, h head, s routeSpec) {
	if !concerns(s.ParentRefs) {
		return
	}
	outbound(f, h, s.ParentRefs)
	for i, r := range s.Rules {
		here := at("spec.rules", i)
		r.check(f, here, false)
		backends(f, here+".backendRefs", r.BackendRefs)
	}
}

func (r httpRule) check(f *finder, here string, strict bool) {
	for i, m := range r.Matches {
		m.check(f, at(here+".matches", i))
	}
	filters(f, here+".filters", r.Filters, strict)
	for i, b := range r.BackendRefs {
		filters(f, at(here+".backendRefs", i)+".filters", b.Filters, strict)
	}
}

// concerns says whether any parent is the mesh's. A route that belongs to other
// controllers alone is theirs to judge: its fields may mean something to them.
func concerns(parents []parent) bool {
	for _, p := range parents {
		if p.outbound() || p.is(policyGroup, "Server") {
			return true
		}
	}
	return false
}

// outbound says whether the parent is one that clients' proxies route for.
func (p parent) outbound() bool { return p.is("", "Service") || p.is(policyGroup, "EgressNetwork") }

// outbound judges what holds for parents of every kind of route, and the
// annotations, which only clients' proxies obey.
func outbound(f *finder, h head, parents []parent) {
	obeyed := egressPorts(f, parents)
	for _, p := range parents {
		obeyed = obeyed || p.outbound()
	}
	if !obeyed {
		return
	}
	for _, a := range annotations {
		if value, ok := h.annotations[a.key]; ok {
			if err := a.parse(value); err != nil {
				f.bad("metadata.annotations["+a.key+"]", "is "+quote(value), err.Error(), "see what the annotation takes, or remove it")
			}
		}
	}
}

// egressPorts judges parents that are EgressNetworks, and says whether there are any.
func egressPorts(f *finder, parents []parent) bool {
	found := false
	for i, p := range parents {
		if !p.is(policyGroup, "EgressNetwork") {
			continue
		}
		found = true
		if p.Port == nil {
			f.bad(at("spec.parentRefs", i)+".port", "is missing", "an EgressNetwork has no ports of its own that could be meant", "add the port that clients connect to, such as 443")
		}
	}
	return found
}

// annotations on routes, and who reads their values.
var annotations = [...]struct {
	key   string
	parse func(string) error
}{
	{"retry.linkerd.io/http", parsed(derive.ParseStatuses)},
	{"retry.linkerd.io/grpc", parsed(derive.ParseGRPCStatuses)},
	{"retry.linkerd.io/limit", parsed(func(s string) (uint64, error) {
		n, err := strconv.ParseUint(strings.TrimSpace(s), 10, 16)
		if err != nil {
			return 0, errLimit
		}
		return n, nil
	})},
	{"retry.linkerd.io/timeout", parsed(derive.ParseDuration)},
	{"timeout.linkerd.io/request", parsed(derive.ParseDuration)},
	{"timeout.linkerd.io/response", parsed(derive.ParseDuration)},
	{"timeout.linkerd.io/idle", parsed(derive.ParseDuration)},
}

var errLimit = errors.New("a limit is a whole number up to 65535")

func parsed[T any](parse func(string) (T, error)) func(string) error {
	return func(s string) error {
		_, err := parse(s)
		return err
	}
}

// backends judges references to Services. A port is not optional there, though
// Kubernetes takes the reference without one.
func backends(f *finder, field string, all []backend) {
	for i, b := range all {
		service := isCore(b.Group) && (b.Kind == "" || strings.EqualFold(b.Kind, "Service"))
		if service && (b.Port == nil || *b.Port == 0) {
			f.bad(at(field, i)+".port", "is missing", "a Service may have several ports", "add the port of Service "+b.Name+" that requests go to")
		}
	}
}

// timeout reads a duration as the CRD has it; 0 when there is none.
func timeout(f *finder, field string, text *string) time.Duration {
	if text == nil {
		return 0
	}
	d, err := time.ParseDuration(*text)
	switch {
	case err != nil:
		f.bad(field, "is "+quote(*text), "it is no duration", "write it like 10s or 1m30s")
	case d < 0:
		f.bad(field, "is "+quote(*text), "it is negative", "write it like 10s; 0s means no timeout")
	}
	return d
}

type grpcSpec struct {
	ParentRefs []parent `json:"parentRefs"`
	Rules      []struct {
		Matches []struct {
			Method  *grpcMethod `json:"method"`
			Headers []valued    `json:"headers"`
		} `json:"matches"`
		Filters     []filter  `json:"filters"`
		BackendRefs []backend `json:"backendRefs"`
	} `json:"rules"`
}

type grpcMethod struct {
	Type    string `json:"type"`
	Service string `json:"service"`
	Method  string `json:"method"`
}

func grpcRoute(f *finder, h head, s grpcSpec) {
	if !concerns(s.ParentRefs) {
		return
	}
	outbound(f, h, s.ParentRefs)
	for i, r := range s.Rules {
		here := at("spec.rules", i)
		for j, m := range r.Matches {
			match := at(here+".matches", j)
			headers(f, match+".headers", m.Headers)
			if m.Method == nil {
				continue
			}
			if m.Method.Service == "" && m.Method.Method == "" {
				f.bad(match+".method", "has neither service nor method", "it would match nothing in particular", "add one of them, or leave method out")
			}
			if m.Method.Type == regular {
				f.bad(match+".method.type", "is "+regular, "Linkerd's proxy API has exact methods only", "list the methods, each in a match of its own")
			}
		}
		filters(f, here+".filters", r.Filters, false)
		for j, b := range r.BackendRefs {
			filters(f, at(here+".backendRefs", j)+".filters", b.Filters, false)
		}
		backends(f, here+".backendRefs", r.BackendRefs)
	}
}

type streamSpec struct {
	ParentRefs []parent   `json:"parentRefs"`
	Rules      []struct{} `json:"rules"`
}

// streamRoute judges TLSRoutes and TCPRoutes.
func streamRoute(f *finder, _ head, s streamSpec) {
	if !concerns(s.ParentRefs) {
		return
	}
	egressPorts(f, s.ParentRefs)
	if len(s.Rules) != 1 {
		f.bad("spec.rules", "has "+strconv.Itoa(len(s.Rules))+" rules", "nothing in a connection could choose between them", "write exactly one rule")
	}
}
