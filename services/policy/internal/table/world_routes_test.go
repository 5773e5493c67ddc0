package table

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/weftmesh/weft/bus"
	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
)

const (
	policyGroup  = "policy.linkerd.io"
	gatewayGroup = "gateway.networking.k8s.io"
)

// randomRouteRef names a route, of which some exist.
func randomRouteRef(r *rand.Rand) *busv1.Ref {
	name := pick(r, "r0", "r1", "r2", "r3")
	return pick(r,
		&busv1.Ref{Group: policyGroup, Kind: "HTTPRoute", Name: name},
		&busv1.Ref{Group: gatewayGroup, Kind: "HTTPRoute", Name: name},
		&busv1.Ref{Group: gatewayGroup, Kind: "GRPCRoute", Name: name})
}

// refTo names a route that exists.
func refTo(o object) *busv1.Ref {
	row, _ := o.row.(*busv1.Route)
	return &busv1.Ref{Group: row.GetGroup(), Kind: row.GetKind(), Name: row.GetName()}
}

// randomRoutes makes routes on Servers, of which some must be refused: for a
// parent elsewhere, for a port, or for a path that cannot be.
func randomRoutes(r *rand.Rand, ns string) []object {
	var out []object
	for i := range 4 {
		ref := randomRouteRef(r)
		row := &busv1.Route{
			Group: ref.GetGroup(), Kind: ref.GetKind(), Namespace: ns, Name: fmt.Sprintf("r%d", i), CreatedAt: int64(r.IntN(3)),
		}
		for range 1 + r.IntN(2) {
			parent := &busv1.ParentRef{Group: policyGroup, Kind: "Server", Name: pick(r, "s0", "s1", "s2", "ghost")}
			switch r.IntN(6) {
			case 0:
				parent.Namespace = pick(r, namespaces...)
			case 1:
				parent.Port = 80
			case 2:
				parent.Group, parent.Kind = "", "Service"
			}
			row.Parents = append(row.Parents, parent)
		}
		for range 1 + r.IntN(2) {
			rule := &busv1.RouteRule{}
			for range r.IntN(3) {
				rule.Matches = append(rule.Matches, randomMatch(r, ref.GetKind()))
			}
			row.Rules = append(row.Rules, rule)
		}
		out = append(out, object{busv1.Table_TABLE_ROUTES, bus.Key(row.GetGroup(), row.GetKind(), ns, row.GetName()), row})
	}
	return out
}

func randomMatch(r *rand.Rand, kind string) *busv1.RouteMatch {
	if kind == "GRPCRoute" {
		return &busv1.RouteMatch{Grpc: pick(r, nil,
			&busv1.GrpcMethod{Service: "a"}, &busv1.GrpcMethod{Service: "a", Method: "b"}, &busv1.GrpcMethod{Method: "b"},
			&busv1.GrpcMethod{Type: pick(r, "Exact", "RegularExpression"), Service: "a"})}
	}
	m := &busv1.RouteMatch{Method: pick(r, "", "", "GET", "POST")}
	switch r.IntN(8) {
	case 0:
	case 1, 2:
		m.Path = &busv1.TypedValue{Type: "Exact", Value: pick(r, "/a", "/a/b")}
	case 3:
		m.Path = &busv1.TypedValue{Type: "PathPrefix", Value: "x"} // no proxy could obey
	default:
		m.Path = &busv1.TypedValue{Type: "PathPrefix", Value: pick(r, "/", "/a", "/a/", "/c")}
	}
	return m
}

// randomAuthorizations makes ServerAuthorizations, of which some say nothing or
// too much, and a rate limit.
func randomAuthorizations(r *rand.Rand, ns string) []object {
	var out []object
	out = append(out, object{busv1.Table_TABLE_RATE_LIMITS, bus.Key(ns, "limit"), &busv1.RateLimit{
		Namespace: ns, Name: "limit", Total: uint32(1 + r.IntN(9)),
		Target: &busv1.Ref{Group: policyGroup, Kind: pick(r, "Server", "Service"), Name: pick(r, "s0", "s1", "ghost")},
	}})
	for i := range 2 {
		name := fmt.Sprintf("z%d", i)
		row := &busv1.ServerAuthorization{Namespace: ns, Name: name}
		if r.IntN(2) == 0 {
			row.Server = pick(r, "s0", "s1", "s2")
		} else {
			row.Servers = &busv1.Selector{MatchLabels: map[string]string{"tier": pick(r, "front", "back")}}
		}
		if r.IntN(2) == 0 {
			row.Networks = []*busv1.Network{{Cidr: pick(r, "10.0.0.0/8", "192.0.2.0/24", "ten")}}
		}
		switch r.IntN(5) {
		case 0:
			row.Unauthenticated = true
			row.MeshTls = r.IntN(2) == 0
		case 1:
			row.MeshTls, row.UnauthenticatedTls = true, true
		case 2:
			row.MeshTls = true
			row.Identities = pick(r, []string{"one." + ns}, []string{"*"}, nil)
		default:
			row.MeshTls = true
			row.ServiceAccounts = []*busv1.Ref{{Name: "amy", Namespace: pick(r, "", "b")}}
		}
		out = append(out, object{busv1.Table_TABLE_SERVER_AUTHORIZATIONS, bus.Key(ns, name), row})
	}
	return out
}

// serverAuthorizations lists those that hold for a Server.
func (m model) serverAuthorizations(s *busv1.Server) []*busv1.ServerAuthorization {
	var out []*busv1.ServerAuthorization
	for _, o := range m.objects {
		z, ok := o.row.(*busv1.ServerAuthorization)
		if !ok || z.GetNamespace() != s.GetNamespace() || z.GetServer() != "" && z.GetServer() != s.GetName() {
			continue
		}
		if z.GetServer() == "" && z.GetServers().GetMatchLabels()["tier"] != s.GetLabels()["tier"] {
			continue
		}
		silent := !z.GetUnauthenticated() && !z.GetUnauthenticatedTls() && len(z.GetIdentities())+len(z.GetServiceAccounts()) == 0
		if silent || z.GetUnauthenticated() && z.GetMeshTls() || len(z.GetNetworks()) > 0 && z.GetNetworks()[0].GetCidr() == "ten" {
			continue
		}
		out = append(out, z)
	}
	return out
}

// accounts are the identities of a ServerAuthorization.
func accounts(z *busv1.ServerAuthorization) []string {
	out := z.GetIdentities()
	for _, a := range z.GetServiceAccounts() {
		ns := a.GetNamespace()
		if ns == "" {
			ns = z.GetNamespace()
		}
		out = append(slices.Clip(out), "amy."+ns+".serviceaccount.identity.linkerd.cluster.local")
	}
	return out
}

// serverGrants is what ServerAuthorizations allow on a Server, in words.
func (m model) serverGrants(s *busv1.Server) []string {
	var out []string
	for _, z := range m.serverAuthorizations(s) {
		who, nets := strings.Join(accounts(z), " "), "10.0.0.0/8" // of the cluster
		switch {
		case z.GetUnauthenticated():
			who = "anybody"
		case z.GetUnauthenticatedTls():
			who = "tls"
		}
		if len(z.GetNetworks()) > 0 {
			nets = z.GetNetworks()[0].GetCidr()
		}
		out = append(out, z.GetName()+": "+who+" from "+nets)
	}
	return out
}
