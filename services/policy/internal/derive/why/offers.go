package why

import (
	"slices"

	"github.com/linkerd/linkerd2-proxy-api/go/inbound"
	"github.com/linkerd/linkerd2-proxy-api/go/meta"
	"github.com/linkerd/linkerd2-proxy-api/go/outbound"
	"google.golang.org/protobuf/proto"
)

// inboundOffers lists the rules of an inbound answer, with what each route's own
// authorizations are.
func inboundOffers(p *inbound.ProxyProtocol) (offers []offer, authz [][]*inbound.Authz) {
	for _, route := range slices.Concat(p.GetDetect().GetHttpRoutes(), p.GetHttp1().GetRoutes(), p.GetHttp2().GetRoutes()) {
		for _, rule := range route.GetRules() {
			offers = append(offers, offer{route: name(route.GetMetadata()), hosts: route.GetHosts(), http: rule.GetMatches()})
			authz = append(authz, route.GetAuthorizations())
		}
	}
	for _, route := range p.GetGrpc().GetRoutes() {
		for _, rule := range route.GetRules() {
			offers = append(offers, offer{route: name(route.GetMetadata()), hosts: route.GetHosts(), grpc: rule.GetMatches(), rpc: true})
			authz = append(authz, route.GetAuthorizations())
		}
	}
	return offers, authz
}

// place is where a rule stands in an answer, as extensions name it.
type place struct{ route, rule uint32 }

// outboundOffers lists the rules of an outbound answer for HTTP and gRPC.
func outboundOffers(p *outbound.ProxyProtocol) (offers []offer, rules []proto.Message, places []place) {
	http := slices.Concat(p.GetHttp1().GetRoutes(), p.GetHttp2().GetRoutes())
	if d := p.GetDetect(); d != nil {
		http = d.GetHttp1().GetRoutes() // those of HTTP/2 are the same
	}
	for i, route := range http {
		for j, rule := range route.GetRules() {
			offers = append(offers, offer{route: qualified(route.GetMetadata()), hosts: route.GetHosts(), http: rule.GetMatches()})
			rules, places = append(rules, rule), append(places, place{uint32(i), uint32(j)})
		}
	}
	for i, route := range p.GetGrpc().GetRoutes() {
		for j, rule := range route.GetRules() {
			offers = append(offers, offer{route: qualified(route.GetMetadata()), hosts: route.GetHosts(), grpc: rule.GetMatches(), rpc: true})
			rules, places = append(rules, rule), append(places, place{uint32(i), uint32(j)})
		}
	}
	return offers, rules, places
}

// name is kind and name of what is in the namespace that is asked about.
func name(m *meta.Metadata) string {
	if r := m.GetResource(); r != nil {
		return r.GetKind() + " " + r.GetName()
	}
	return "default " + m.GetDefault()
}

// qualified is kind, namespace and name.
func qualified(m *meta.Metadata) string {
	if r := m.GetResource(); r != nil {
		return r.GetKind() + " " + r.GetNamespace() + "/" + r.GetName()
	}
	return "default " + m.GetDefault()
}
