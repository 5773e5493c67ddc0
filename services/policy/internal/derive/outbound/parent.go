package outbound

import (
	"net/netip"

	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
	"github.com/weftmesh/weft/services/policy/internal/derive"
	"github.com/weftmesh/weft/services/policy/internal/derive/accept"
	"github.com/weftmesh/weft/services/policy/internal/derive/egress"
	"github.com/weftmesh/weft/services/policy/internal/derive/route"
)

// Parent is what clients call, a Service or an EgressNetwork, with the routes
// that it has accepted.
type Parent struct {
	Namespace, Name string
	// Service is nil for an EgressNetwork, and for a Service that does not exist,
	// or not yet.
	Service *Service
	// Egress is nil for a Service.
	Egress *egress.Network
	Routes *accept.Attached
}

// Question is what is asked about a parent.
type Question struct {
	Port uint16
	// Source is the client's namespace.
	Source string
	// Address is where the connection was going; only for an EgressNetwork.
	Address netip.Addr
	// Complete asks for what only our own API can say, too.
	Complete bool
}

// settings are what the parent's annotations say.
func (p Parent) settings(c derive.Cluster) settings {
	switch {
	case p.Egress != nil:
		s, _ := readSettings(c, p.Egress.Row.GetAnnotations())
		return s
	case p.Service != nil:
		return p.Service.settings
	}
	return settings{}
}

// EgressProblems says in words which annotations of an EgressNetwork cannot be
// read and are left out.
func EgressProblems(c derive.Cluster, n *egress.Network) []string {
	_, problems := readSettings(c, n.Row.GetAnnotations())
	return problems
}

// attached is a route that the parent has accepted.
type attached struct {
	*Route
	unresolved map[*busv1.BackendRef]accept.Unresolved
}

// routes lists by kind the routes that the client's requests may take, in order
// of precedence. Those of the client's namespace join those of the parent's;
// neither replaces the other (§9.2).
func (p Parent) routes(q Question) map[route.Kind][]attached {
	out := map[route.Kind][]attached{}
	var last *route.Route
	for _, v := range p.Routes.For(q.Source, q.Port) {
		if v.Route == last { // it names the parent twice and is still one route
			continue
		}
		last = v.Route
		// What is accepted can be obeyed; an error would be one of ours.
		if r, err := NewRoute(v.Route); err == nil {
			out[r.Kind] = append(out[r.Kind], attached{Route: r, unresolved: v.Unresolved})
		}
	}
	return out
}
