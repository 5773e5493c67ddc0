package rule

import (
	"strconv"
	"strings"

	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
	"github.com/weftmesh/weft/services/policy/internal/derive/route"
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
	Timeouts    struct {
		Request        string `json:"request"`
		BackendRequest string `json:"backendRequest"`
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
		f.obey(route.CheckTimeouts(here+".timeouts", &busv1.RouteRule{
			RequestTimeout: r.Timeouts.Request, BackendRequestTimeout: r.Timeouts.BackendRequest,
		}))
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
	row := &busv1.RouteRule{}
	for _, m := range r.Matches {
		row.Matches = append(row.Matches, m.row())
	}
	_, err := route.HTTPMatches(here, row)
	f.obey(err)
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
	f.obey(route.CheckAnnotations(h.annotations))
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
		row := &busv1.RouteRule{}
		for _, m := range r.Matches {
			match := &busv1.RouteMatch{Headers: typed(m.Headers)}
			if m.Method != nil {
				match.Grpc = &busv1.GrpcMethod{Type: m.Method.Type, Service: m.Method.Service, Method: m.Method.Method}
			}
			row.Matches = append(row.Matches, match)
		}
		_, err := route.GRPCMatches(here, row)
		f.obey(err)
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
