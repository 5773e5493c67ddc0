package why

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/linkerd/linkerd2-proxy-api/go/http_route"
	"github.com/linkerd/linkerd2-proxy-api/go/meta"
	"github.com/linkerd/linkerd2-proxy-api/go/outbound"
	"google.golang.org/protobuf/proto"

	routesv1 "github.com/weftmesh/weft/proto/gen/weft/routes/v1"
)

// Way is where a request goes, and why.
type Way struct {
	// Parent is whose policy it is.
	Parent string
	// Protocol is how the proxy treats the connection.
	Protocol string
	// Route is what takes the request; empty if nothing does.
	Route string
	// Rules are those of the route that take the request, with what they do beyond
	// Linkerd's API: one, or all where only the route is known.
	Rules []proto.Message
	// Does is what the rules do, one thing a line.
	Does []string
	// Routes are all there are, in order.
	Routes []RouteReason
	// Reason tells what no route tells.
	Reason string
	// TooMuch means that the way is not known for what it would cost to find out.
	TooMuch bool
	// Unknown means that a request would have a way, or none, and nobody named one.
	Unknown bool
}

// Follow finds a request's way by an answer of OutboundPolicies, or of our own API
// with its extensions. Without a
// request, route may name the route that takes it, as kind, namespace and name;
// without either it is about a connection of which only the bytes are known.
func Follow(p *outbound.OutboundPolicy, beyond []*routesv1.RuleExtension, r *Request, route string) Way {
	w := Way{Parent: parent(p.GetMetadata())}
	kind := p.GetProtocol()
	switch {
	case kind.GetOpaque() != nil:
		w.Protocol = "opaque"
		w.opaque(kind.GetOpaque().GetRoutes())
		return w
	case kind.GetTls() != nil:
		w.Protocol = "tls"
		w.tls(kind.GetTls().GetRoutes(), r, route)
		return w
	case kind.GetDetect() != nil:
		w.Protocol = "detect"
		if r == nil && route == "" {
			w.opaque(kind.GetDetect().GetOpaque().GetRoutes())
			w.Reason = "these are bytes that are no HTTP; name a request to see its route"
			return w
		}
		w.breaker(kind.GetDetect().GetHttp1().GetFailureAccrual())
	case kind.GetHttp1() != nil:
		w.Protocol = "http1"
		w.breaker(kind.GetHttp1().GetFailureAccrual())
	case kind.GetHttp2() != nil:
		w.Protocol = "http2"
		w.breaker(kind.GetHttp2().GetFailureAccrual())
	case kind.GetGrpc() != nil:
		w.Protocol = "grpc"
		w.breaker(kind.GetGrpc().GetFailureAccrual())
	default:
		w.Reason = "the policy says no protocol"
		return w
	}
	offers, rules, places := outboundOffers(kind)
	for _, i := range w.take(offers, rules, r, route) {
		for _, e := range beyond {
			if e.GetRoute() == places[i].route && e.GetRule() == places[i].rule {
				w.Rules = append(w.Rules, e)
				w.Does = append(w.Does, beyondText(e)...)
			}
		}
	}
	return w
}

// take finds the rule of a request, or the rules of a route, and returns their
// places among the offers.
func (w *Way) take(offers []offer, rules []proto.Message, r *Request, route string) (taken []int) {
	if r == nil {
		for i, o := range offers {
			if len(w.Routes) == 0 || w.Routes[len(w.Routes)-1].Name != o.route {
				w.Routes = append(w.Routes, RouteReason{Name: o.route, Reason: "that depends on the request"})
			}
			if o.route == route {
				w.Routes[len(w.Routes)-1].Reason = ""
				w.by(o.route, rules[i])
				taken = append(taken, i)
			}
		}
		switch {
		case len(offers) == 0:
			w.Reason = "there are no routes: none takes a request"
		case route == "":
			w.Reason, w.Unknown = "name a request: which route takes it depends on that", true
		case w.Route == "":
			w.Unknown = true
			w.Reason = route + " is not among the routes: which of them takes its requests depends on them"
		}
		return taken
	}
	best, routes, costly := choose(offers, r)
	if costly {
		w.Reason, w.TooMuch = tooMuch, true
		return nil
	}
	w.Routes = routes
	if best < 0 {
		w.Reason = "no route matches the request: the answer is 404, of gRPC NOT_FOUND"
		return nil
	}
	w.by(offers[best].route, rules[best])
	return []int{best}
}

func (w *Way) by(route string, rule proto.Message) {
	w.Route = route
	w.Rules = append(w.Rules, rule)
	w.Does = append(w.Does, does(rule)...)
}

// opaque takes the first route: nothing tells two of them apart.
func (w *Way) opaque(routes []*outbound.OpaqueRoute) {
	for i, route := range routes {
		reason := RouteReason{Name: qualified(route.GetMetadata())}
		if i > 0 {
			reason.Reason = "a connection takes the first route"
		}
		w.Routes = append(w.Routes, reason)
		for _, rule := range route.GetRules() {
			if i == 0 {
				w.by(reason.Name, rule)
			}
		}
	}
}

// tls takes the route with the best server name.
func (w *Way) tls(routes []*outbound.TlsRoute, r *Request, route string) {
	var offers []offer
	var rules []proto.Message
	for _, one := range routes {
		var hosts []*http_route.HostMatch
		for _, s := range one.GetSnis() {
			h := &http_route.HostMatch{}
			if exact := s.GetExact(); exact != "" {
				h.Match = &http_route.HostMatch_Exact{Exact: exact}
			} else {
				h.Match = &http_route.HostMatch_Suffix_{Suffix: &http_route.HostMatch_Suffix{ReverseLabels: s.GetSuffix().GetReverseLabels()}}
			}
			hosts = append(hosts, h)
		}
		for _, rule := range one.GetRules() {
			offers = append(offers, offer{route: qualified(one.GetMetadata()), hosts: hosts})
			rules = append(rules, rule)
		}
	}
	w.take(offers, rules, r, route)
}

// breaker tells of the circuit breaker of every endpoint.
func (w *Way) breaker(a *outbound.FailureAccrual) {
	if a != nil {
		w.Does = append(w.Does, "breaks circuits: "+fields(a))
	}
}

// parent is kind, namespace, name and port of who is called.
func parent(m *meta.Metadata) string {
	if r := m.GetResource(); r != nil {
		return fmt.Sprintf("%s %s/%s:%d", r.GetKind(), r.GetNamespace(), r.GetName(), r.GetPort())
	}
	return "default " + m.GetDefault()
}

// Same says whether two ways do the same to a request.
func (w Way) Same(o Way) bool {
	return w.Parent == o.Parent && w.Protocol == o.Protocol && w.Route == o.Route && w.Reason == o.Reason &&
		slices.Equal(w.Does, o.Does) && slices.EqualFunc(w.Rules, o.Rules, func(a, b proto.Message) bool { return proto.Equal(a, b) })
}

// weights writes shares of requests.
func weights(w uint32, all uint64) string {
	if all == 0 {
		return "weight 0"
	}
	return strings.TrimSuffix(strconv.FormatFloat(float64(w)*100/float64(all), 'f', 1, 64), ".0") + "%"
}
