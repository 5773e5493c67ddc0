// Package accept judges what people attach to something else: routes, egress
// networks and rate limits. It is pure, and the one place that does so: what a
// proxy is told and what a status says come from the same verdicts, so an answer
// never waits until a status has been through Kubernetes.
//
// Source: spec/destination-policy.md §10; where Linkerd has no word for a
// mistake, the Gateway API's is used.
package accept

import (
	"fmt"
	"slices"

	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
	"github.com/weftmesh/weft/services/policy/internal/derive"
	"github.com/weftmesh/weft/services/policy/internal/derive/egress"
	"github.com/weftmesh/weft/services/policy/internal/derive/route"
)

// The types of conditions.
const (
	TypeAccepted     = "Accepted"
	TypeResolvedRefs = "ResolvedRefs"
)

// The reasons of conditions.
const (
	ReasonAccepted         = "Accepted"
	ReasonResolvedRefs     = "ResolvedRefs"
	ReasonNoMatchingParent = "NoMatchingParent"
	ReasonConflicted       = "RouteReasonConflicted"
	ReasonBackendNotFound  = "BackendNotFound"
	ReasonInvalidKind      = "InvalidKind"
	ReasonRefNotPermitted  = "RefNotPermitted"
	ReasonUnsupportedValue = "UnsupportedValue"
	ReasonNetworkOverlap   = "EgressReasonNetworkOverlap"
	ReasonAlreadyExists    = "RateLimitReasonAlreadyExists"
	ReasonNoMatchingTarget = "NoMatchingTarget"
)

// Condition is one finding, as a status shows it.
type Condition struct {
	Holds           bool
	Reason, Message string
}

var accepted = Condition{Holds: true, Reason: ReasonAccepted}

func refused(reason, format string, args ...any) Condition {
	return Condition{Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// Service is a Service as a parent or a backend.
type Service struct {
	// Addressed Services have a cluster IP; headless ones and ExternalNames not.
	Addressed bool
	// External is an ExternalName, which has no endpoints of its own.
	External bool
	// Ports by number, with their names.
	Ports map[uint16]string
}

// NewService reads a row.
func NewService(row *busv1.Service) *Service {
	s := &Service{Ports: map[uint16]string{}, External: row.GetExternalName()}
	for _, ip := range row.GetClusterIps() {
		s.Addressed = s.Addressed || ip != "" && ip != "None"
	}
	s.Addressed = s.Addressed && !row.GetExternalName()
	for _, p := range row.GetPorts() {
		if port := uint16(p.GetPort()); uint32(port) == p.GetPort() && port != 0 {
			if _, ok := s.Ports[port]; !ok {
				s.Ports[port] = p.GetName()
			}
		}
	}
	return s
}

// World finds what a judgement depends on; nil and false if it does not exist.
type World interface {
	HasServer(namespace, name string) bool
	Service(namespace, name string) *Service
	Egress(namespace, name string) *egress.Network
	// Grants are the ReferenceGrants that a namespace holds.
	Grants(namespace string) []*busv1.ReferenceGrant
}

// Verdict is what one parent makes of one of a route's references to it.
type Verdict struct {
	Route  *route.Route
	Parent route.Parent
	Ref    *busv1.ParentRef
	// Port is the parent's port; 0 for all of them.
	Port     uint16
	Accepted Condition
	// ResolvedRefs is nil for a Server, which has no use for backends.
	ResolvedRefs *Condition
	// Unresolved are the backends that requests must not be sent to.
	Unresolved map[*busv1.BackendRef]Unresolved
}

// Routes judges all routes that name a parent, together, since they may be in
// each other's way. The order of the routes does not matter; the verdicts are in
// the routes' order of age, then of their references.
func Routes(c derive.Cluster, w World, p route.Parent, routes []*route.Route) []Verdict {
	routes = slices.Clone(routes)
	slices.SortFunc(routes, route.Older)
	var out []Verdict
	for _, r := range routes {
		for _, ref := range r.Row.GetParents() {
			if r.ParentOf(ref) != p {
				continue
			}
			v := Verdict{Route: r, Parent: p, Ref: ref}
			v.Port, v.Accepted = parentOf(w, p, r, ref)
			if p.Kind != route.Server {
				v.resolve(c, w)
			}
			out = append(out, v)
		}
	}
	if p.Kind == route.Server {
		return out
	}
	conflicts(out)
	for i := range out {
		if v := &out[i]; v.Accepted.Holds {
			v.Accepted.Message = v.Route.Beyond()
		}
	}
	return out
}

// parentOf judges one reference without regard to other routes.
func parentOf(w World, p route.Parent, r *route.Route, ref *busv1.ParentRef) (port uint16, c Condition) {
	port = uint16(ref.GetPort())
	if uint32(port) != ref.GetPort() {
		return 0, refused(ReasonNoMatchingParent, "%d is not a port", ref.GetPort())
	}
	problem := r.Outbound
	switch p.Kind {
	case route.Server:
		c, problem = serverOf(w, p, r, ref), r.Inbound
	case route.Service:
		port, c = serviceOf(w, p, ref)
	case route.EgressNetwork:
		c = egressOf(w, p, ref)
	default:
		c = refused(ReasonNoMatchingParent, "")
	}
	if c.Holds && problem != nil {
		c = refused(ReasonUnsupportedValue, "%v", problem)
	}
	return port, c
}

func serverOf(w World, p route.Parent, r *route.Route, ref *busv1.ParentRef) Condition {
	switch {
	case r.Kind != route.HTTP && r.Kind != route.GRPC:
		return refused(ReasonNoMatchingParent, "a %s cannot be attached to a Server", r.Row.GetKind())
	case !r.Producer(p):
		return refused(ReasonNoMatchingParent, "a Server takes routes of its own namespace only")
	case ref.GetPort() != 0 || ref.GetSectionName() != "":
		return refused(ReasonNoMatchingParent, "a Server has one port: leave port and sectionName out")
	case !w.HasServer(p.Namespace, p.Name):
		return refused(ReasonNoMatchingParent, "")
	}
	return accepted
}

// serviceOf finds the port too: a section name is a port's name.
func serviceOf(w World, p route.Parent, ref *busv1.ParentRef) (uint16, Condition) {
	port := uint16(ref.GetPort())
	s := w.Service(p.Namespace, p.Name)
	switch {
	case s == nil:
		return port, refused(ReasonNoMatchingParent, "")
	case !s.Addressed:
		return port, refused(ReasonNoMatchingParent, "parent service must have a ClusterIP")
	}
	if name, ok := s.Ports[port]; port != 0 && (!ok || ref.GetSectionName() != "" && ref.GetSectionName() != name) {
		return port, refused(ReasonNoMatchingParent, "%v has no such port %d", p, port)
	}
	if name := ref.GetSectionName(); name != "" && port == 0 {
		for number, named := range s.Ports {
			// Names are unique within a Service.
			if named == name {
				return number, accepted
			}
		}
		return port, refused(ReasonNoMatchingParent, "%v has no port named %q", p, name)
	}
	return port, accepted
}

func egressOf(w World, p route.Parent, ref *busv1.ParentRef) Condition {
	n := w.Egress(p.Namespace, p.Name)
	switch {
	case n == nil:
		return refused(ReasonNoMatchingParent, "")
	case !Egress(n).Holds:
		return refused(ReasonNoMatchingParent, "EgressNetwork parent has not been accepted")
	case ref.GetSectionName() != "":
		return refused(ReasonNoMatchingParent, "an EgressNetwork has no sections: write the port's number")
	}
	return accepted
}

// conflicts refuses the weaker kinds where several are attached to the same
// reference, since a client must know which protocol to speak (GEP-1426; a Server
// says its protocol itself). A route of another namespace than the parent's is only in the way
// of those of its own: nobody can disturb the clients of others. A route that
// is refused for another reason is in nobody's way.
func conflicts(all []Verdict) {
	strongest := map[place]route.Kind{}
	for _, v := range all {
		if v.Accepted.Holds {
			p := v.place(v.Route.Row.GetNamespace())
			strongest[p] = max(strongest[p], v.Route.Kind)
		}
	}
	for i := range all {
		v := &all[i]
		// What producers attach is before every client's eyes.
		winner := max(strongest[v.place(v.Parent.Namespace)], strongest[v.place(v.Route.Row.GetNamespace())])
		if v.Accepted.Holds && v.Route.Kind < winner {
			v.Accepted = refused(ReasonConflicted, "a route of a kind that takes precedence is attached to the same parent")
		}
	}
}

// place is where routes are in each other's way.
type place struct {
	namespace string
	port      uint32
	section   string
}

func (v Verdict) place(namespace string) place {
	return place{namespace, v.Ref.GetPort(), v.Ref.GetSectionName()}
}

// Egress judges an EgressNetwork.
func Egress(n *egress.Network) Condition {
	switch {
	case len(n.Problems) > 0:
		return refused(ReasonUnsupportedValue, "%s", n.Problems[0])
	case n.Overlap != "":
		return refused(ReasonNetworkOverlap, "networks must not be the cluster's own: %s", n.Overlap)
	}
	return accepted
}
