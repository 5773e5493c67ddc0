package outbound

import (
	"fmt"
	"time"

	"github.com/linkerd/linkerd2-proxy-api/go/grpc_route"
	"github.com/linkerd/linkerd2-proxy-api/go/http_route"
	"github.com/linkerd/linkerd2-proxy-api/go/meta"
	"github.com/linkerd/linkerd2-proxy-api/go/tls_route"

	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
	routesv1 "github.com/weftmesh/weft/proto/gen/weft/routes/v1"
	"github.com/weftmesh/weft/services/policy/internal/derive/accept"
	"github.com/weftmesh/weft/services/policy/internal/derive/route"
)

// Route is a route as the answers need it: all of it that no parent changes.
type Route struct {
	*route.Route

	hosts []*http_route.HostMatch
	snis  []*tls_route.SniMatch
	rules []rule
}

// rule is one rule of a route of any kind.
type rule struct {
	http     []*http_route.HttpRouteMatch
	grpc     []*grpc_route.GrpcRouteMatch
	filters  filters
	backends []backendRef
	retry    *retry
	timeouts timeouts
	session  *routesv1.SessionPersistence
	attempt  time.Duration
}

// backendRef is where a rule sends requests.
type backendRef struct {
	ref     *busv1.BackendRef
	to      route.Parent // its kind is NoParent if it is not ours
	filters filters
}

// NewRoute digests a route. An error means that no proxy could obey it and names
// what is wrong; then it must be left out.
func NewRoute(r *route.Route) (*Route, error) {
	if r.Outbound != nil {
		return nil, r.Outbound
	}
	out := &Route{Route: r}
	var err error
	switch r.Kind {
	case route.TCP:
	case route.TLS:
		out.snis, err = snis(r.Row)
	default:
		out.hosts, err = route.Hosts(r.Row)
	}
	if err != nil {
		return nil, err
	}
	requests := r.Kind == route.HTTP || r.Kind == route.GRPC
	a := reader{values: r.Row.GetAnnotations()}
	retry := a.retry(r.Kind == route.GRPC)
	timeouts := a.timeouts()
	if p := a.take(); requests && len(p) > 0 {
		return nil, fmt.Errorf("metadata.annotations: %s", p[0])
	}
	for i, row := range r.Row.GetRules() {
		field := fmt.Sprintf("spec.rules[%d]", i)
		one, err := newRule(r, field, row)
		if err != nil {
			return nil, err
		}
		if requests {
			one.retry, one.timeouts = retry, timeouts
			if err := one.limit(field+".timeouts", row); err != nil {
				return nil, err
			}
		}
		out.rules = append(out.rules, one)
	}
	return out, nil
}

func newRule(r *route.Route, field string, row *busv1.RouteRule) (rule, error) {
	var (
		out rule
		err error
	)
	switch r.Kind {
	case route.HTTP:
		out.http, err = route.HTTPMatches(field, row)
	case route.GRPC:
		out.grpc, err = route.GRPCMatches(field, row)
	}
	if err != nil {
		return rule{}, err
	}
	requests := r.Kind == route.HTTP || r.Kind == route.GRPC
	if requests {
		if out.filters, err = newFilters(r, field+".filters", row.GetFilters()); err != nil {
			return rule{}, err
		}
		if out.session, err = session(r, field+".sessionPersistence", row.GetSessionPersistence()); err != nil {
			return rule{}, err
		}
	}
	for i, ref := range row.GetBackends() {
		b := backendRef{ref: ref, to: backendOf(r, ref)}
		if requests {
			if b.filters, err = newFilters(r, fmt.Sprintf("%s.backendRefs[%d].filters", field, i), ref.GetFilters()); err != nil {
				return rule{}, err
			}
		}
		out.backends = append(out.backends, b)
	}
	return out, nil
}

// limit takes the rule's own timeouts over. What is written in the rule wins
// over the route's annotation; 0 means none (§9.2).
func (r *rule) limit(field string, row *busv1.RouteRule) error {
	if s := row.GetRequestTimeout(); s != "" {
		d, err := route.Timeout(field+".request", s)
		if err != nil {
			return err
		}
		r.timeouts.request, r.timeouts.set = d, true
	}
	d, err := route.Timeout(field+".backendRequest", row.GetBackendRequestTimeout())
	if err != nil {
		return err
	}
	r.attempt = d
	return nil
}

// backendOf reads a reference; its kind is NoParent if it is not ours.
func backendOf(r *route.Route, ref *busv1.BackendRef) route.Parent {
	return route.Parent{Kind: accept.BackendKind(ref), Namespace: accept.BackendNamespace(r, ref), Name: ref.GetName()}
}

func (r *Route) metadata() *meta.Metadata {
	return &meta.Metadata{Kind: &meta.Metadata_Resource{Resource: &meta.Resource{
		Group: r.Row.GetGroup(), Kind: r.Row.GetKind(), Namespace: r.Row.GetNamespace(), Name: r.Row.GetName(),
	}}}
}
