package shape

import (
	"math"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weftmesh/weft/bus"
	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
)

const (
	groupPolicy  = "policy.linkerd.io"
	groupGateway = "gateway.networking.k8s.io"
)

// router turns one route into its row. What is written wrongly but has the right
// form goes into the row as it is, for the route's status to name; only a number
// that a row can't hold is a problem, the first one of which is kept.
type router struct {
	kind  Kind
	obj   metav1.Object
	wrong *Problem
}

// routeRows makes a route's row.
func routeRows[M any](kind Kind, o *routeOf[M]) ([]Row, *Problem) {
	r := &router{kind: kind, obj: o}
	row := &busv1.Route{
		Group:       groupGateway,
		Kind:        kind.Name(),
		Namespace:   o.Namespace,
		Name:        o.Name,
		Uid:         string(o.UID),
		CreatedAt:   created(o),
		Generation:  o.Generation,
		Annotations: pick(o.Annotations, MeshAnnotation),
		Hostnames:   o.Spec.Hostnames,
	}
	if kind == PolicyHTTPRoutes {
		row.Group = groupPolicy
	}
	for i, p := range o.Spec.ParentRefs {
		row.Parents = append(row.Parents, &busv1.ParentRef{
			Group:       or(p.Group, row.Group),
			Kind:        or(p.Kind, "Gateway"),
			Namespace:   p.Namespace,
			Name:        p.Name,
			SectionName: p.SectionName,
			Port:        r.number("spec.parentRefs["+strconv.Itoa(i)+"].port", p.Port),
		})
	}
	rules := o.Spec.Rules
	if rules == nil && (kind == HTTPRoutes || kind == PolicyHTTPRoutes) {
		rules = make([]ruleOf[M], 1)
	}
	for i := range rules {
		at := "spec.rules[" + strconv.Itoa(i) + "]"
		rule := &rules[i]
		out := &busv1.RouteRule{
			Name:                  rule.Name,
			Filters:               r.filters(at, rule.Filters),
			Backends:              r.backends(at+".backendRefs", rule.BackendRefs),
			RequestTimeout:        rule.Timeouts.Request,
			BackendRequestTimeout: rule.Timeouts.BackendRequest,
			SessionPersistence:    sessionRow(rule.SessionPersistence),
		}
		switch matches := any(rule.Matches).(type) {
		case []httpMatch:
			out.Matches = httpMatches(matches)
		case []grpcMatch:
			out.Matches = grpcMatches(matches)
		}
		row.Rules = append(row.Rules, out)
	}
	if r.wrong != nil {
		return nil, r.wrong
	}
	return []Row{{busv1.Table_TABLE_ROUTES, bus.Key(row.Group, row.Kind, o.Namespace, o.Name), row}}, nil
}

// number is n as a row has it.
func (r *router) number(field string, n int64) uint32 {
	out, wrong := number(r.kind, r.obj, field, n)
	if r.wrong == nil {
		r.wrong = wrong
	}
	return out
}

func number(kind Kind, obj metav1.Object, field string, n int64) (uint32, *Problem) {
	if n < 0 || n > math.MaxUint32 {
		return 0, problem(kind, obj, field, "%d is not between 0 and %d", n, uint32(math.MaxUint32))
	}
	return uint32(n), nil
}

// httpMatches has the CRDs' defaults: every path, and exact values.
func httpMatches(matches []httpMatch) (out []*busv1.RouteMatch) {
	if matches == nil {
		matches = make([]httpMatch, 1)
	}
	for i := range matches {
		m := &matches[i]
		path := &busv1.TypedValue{Type: "PathPrefix", Value: "/"}
		if m.Path != nil {
			path.Type, path.Value = or(m.Path.Type, path.Type), or(m.Path.Value, path.Value)
		}
		out = append(out, &busv1.RouteMatch{
			Path:        path,
			Headers:     typedValues(m.Headers),
			QueryParams: typedValues(m.QueryParams),
			Method:      m.Method,
		})
	}
	return out
}

func grpcMatches(matches []grpcMatch) (out []*busv1.RouteMatch) {
	for i := range matches {
		m := &matches[i]
		match := &busv1.RouteMatch{Headers: typedValues(m.Headers)}
		if m.Method != nil {
			match.Grpc = &busv1.GrpcMethod{Type: or(m.Method.Type, "Exact"), Service: m.Method.Service, Method: m.Method.Method}
		}
		out = append(out, match)
	}
	return out
}

func typedValues(list []typedValue) (out []*busv1.TypedValue) {
	for _, v := range list {
		out = append(out, &busv1.TypedValue{Type: or(v.Type, "Exact"), Name: v.Name, Value: v.Value})
	}
	return out
}

func (r *router) backends(at string, list []backendRef) (out []*busv1.BackendRef) {
	for i := range list {
		out = append(out, r.backend(at+"["+strconv.Itoa(i)+"]", &list[i], 1))
	}
	return out
}

// backend has the CRD's defaults; of what has no weight the default one is 0.
func (r *router) backend(at string, b *backendRef, weight int64) *busv1.BackendRef {
	if b.Weight != nil {
		weight = *b.Weight
	}
	namespace := ""
	if r.kind == PolicyHTTPRoutes {
		namespace = "default" // sic, in Linkerd's CRD
	}
	return &busv1.BackendRef{
		Group:     or(b.Group, ""),
		Kind:      or(b.Kind, "Service"),
		Namespace: or(b.Namespace, namespace),
		Name:      b.Name,
		Port:      r.number(at+".port", b.Port),
		Weight:    r.number(at+".weight", weight),
		Filters:   r.filters(at, b.Filters),
	}
}

func sessionRow(s *session) *busv1.SessionPersistence {
	if s == nil {
		return nil
	}
	out := &busv1.SessionPersistence{
		SessionName:     s.SessionName,
		AbsoluteTimeout: s.AbsoluteTimeout,
		IdleTimeout:     s.IdleTimeout,
		Type:            or(s.Type, "Cookie"),
	}
	if out.Type == "Cookie" {
		out.CookieLifetime = or(s.CookieConfig.LifetimeType, "Session")
	}
	return out
}

// grantRows makes a ReferenceGrant's row.
func grantRows(g *ReferenceGrant) []Row {
	row := &busv1.ReferenceGrant{Namespace: g.Namespace, Name: g.Name}
	for _, f := range g.Spec.From {
		row.From = append(row.From, refRow(f))
	}
	for _, t := range g.Spec.To {
		row.To = append(row.To, &busv1.Ref{Group: t.Group, Kind: t.Kind, Name: t.Name})
	}
	return []Row{{busv1.Table_TABLE_REFERENCE_GRANTS, bus.Key(g.Namespace, g.Name), row}}
}

// or is what was written, or the default.
func or[T any](written *T, byDefault T) T {
	if written == nil {
		return byDefault
	}
	return *written
}
