// Package route reads routes of every kind: what they are attached to, and what
// they match and change, as parts of the proxies' API.
//
// It is pure. A value that no proxy could obey is an error that names its field;
// the rest of the cluster's routes never suffers from it.
package route

import (
	"fmt"
	"slices"
	"strings"

	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
)

// The groups that routes and their parents are of.
const (
	GroupPolicy  = "policy.linkerd.io"
	GroupGateway = "gateway.networking.k8s.io"
)

// Kind is what a route carries. A greater kind wins where several are attached
// to the same port of the same parent (spec/destination-policy.md §10).
type Kind uint8

// The kinds of routes, the weakest first.
const (
	Unknown Kind = iota
	TCP
	TLS
	HTTP
	GRPC
)

// KindOf reads a row's kind; Unknown if it is none of ours.
func KindOf(row *busv1.Route) Kind {
	switch row.GetKind() {
	case "HTTPRoute":
		return HTTP
	case "GRPCRoute":
		return GRPC
	case "TLSRoute":
		return TLS
	case "TCPRoute":
		return TCP
	}
	return Unknown
}

// ParentKind says what a route is attached to.
type ParentKind uint8

// The kinds of parents that are ours.
const (
	NoParent ParentKind = iota
	Server
	Service
	EgressNetwork
)

// String is the kind as Kubernetes writes it.
func (k ParentKind) String() string {
	switch k {
	case Server:
		return "Server"
	case Service:
		return "Service"
	case EgressNetwork:
		return "EgressNetwork"
	}
	return "unknown"
}

// Parent names something that routes are attached to.
type Parent struct {
	Kind            ParentKind
	Namespace, Name string
}

// String is for messages to people.
func (p Parent) String() string {
	return fmt.Sprintf("%s %s/%s", p.Kind, p.Namespace, p.Name)
}

// Route is one row, read.
type Route struct {
	// Row must not be changed.
	Row  *busv1.Route
	Kind Kind
	// Inbound and Outbound say why no proxy could obey the route on the side of
	// the server or of the client; nil if it could.
	Inbound, Outbound error
}

// New reads a row.
func New(row *busv1.Route) *Route {
	r := &Route{Row: row, Kind: KindOf(row)}
	for _, parent := range r.Parents() {
		if parent.Kind == Server && r.Inbound == nil {
			r.Inbound = checkInbound(r)
		}
		if parent.Kind != Server && r.Outbound == nil {
			r.Outbound = checkOutbound(r)
		}
	}
	return r
}

// ParentOf reads a reference; its kind is NoParent if it is not ours.
func (r *Route) ParentOf(ref *busv1.ParentRef) Parent {
	p := Parent{Namespace: ref.GetNamespace(), Name: ref.GetName()}
	if p.Namespace == "" {
		p.Namespace = r.Row.GetNamespace()
	}
	switch group, kind := ref.GetGroup(), ref.GetKind(); {
	case IsPolicy(group) && strings.EqualFold(kind, "Server"):
		p.Kind = Server
	case IsPolicy(group) && strings.EqualFold(kind, "EgressNetwork"):
		p.Kind = EgressNetwork
	case IsCore(group) && strings.EqualFold(kind, "Service"):
		p.Kind = Service
	}
	return p
}

// Parents lists those that are ours, each once.
func (r *Route) Parents() []Parent {
	var out []Parent
	for _, ref := range r.Row.GetParents() {
		if p := r.ParentOf(ref); p.Kind != NoParent && !slices.Contains(out, p) {
			out = append(out, p)
		}
	}
	return out
}

// Producer says whether the route was written where its parent lives: then it
// holds for every client, otherwise only for those of its own namespace.
func (r *Route) Producer(p Parent) bool { return r.Row.GetNamespace() == p.Namespace }

// String is for messages to people.
func (r *Route) String() string {
	return fmt.Sprintf("%s %s/%s", r.Row.GetKind(), r.Row.GetNamespace(), r.Row.GetName())
}

// Older orders routes by age, then by namespace and name, as the Gateway API has
// it. A route of unknown age comes last. Source: also spec/destination-policy.md §8
// and §9.2. What is equal so far is told apart by group and kind, so that any order
// of arrival gives one order.
func Older(a, b *Route) int {
	x, y := a.Row, b.Row
	if c := age(x.GetCreatedAt(), y.GetCreatedAt()); c != 0 {
		return c
	}
	return slices.Compare(
		[]string{x.GetNamespace(), x.GetName(), x.GetGroup(), x.GetKind()},
		[]string{y.GetNamespace(), y.GetName(), y.GetGroup(), y.GetKind()})
}

// age compares two times in Unix seconds, 0 being unknown and last.
func age(a, b int64) int {
	switch {
	case a == b:
		return 0
	case a == 0:
		return 1
	case b == 0 || a < b:
		return -1
	}
	return 1
}

// IsCore says whether a group is Kubernetes' core group.
func IsCore(group string) bool { return group == "" || strings.EqualFold(group, "core") }

// IsPolicy says whether a group is that of Linkerd's policies.
func IsPolicy(group string) bool { return strings.EqualFold(group, GroupPolicy) }
