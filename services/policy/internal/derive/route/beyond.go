package route

import (
	"fmt"
	"slices"
	"strings"

	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
)

// Beyond says what a proxy that knows only Linkerd's API does otherwise than the
// route asks; empty if nothing. What would be another request, or another
// response, fails there, so that nothing is misrouted in silence; copies,
// sessions and limits of single attempts are left out.
func (r *Route) Beyond() string {
	if r.Kind != HTTP && r.Kind != GRPC {
		return ""
	}
	var out []string
	for i, rule := range r.Row.GetRules() {
		field := rulePath(i)
		if lacks := r.Lacks(rule.GetFilters()); len(lacks) > 0 {
			out = append(out, fmt.Sprintf("fails what %s takes (%s)", field, strings.Join(lacks, ", ")))
		}
		for j, b := range rule.GetBackends() {
			if lacks := r.Lacks(b.GetFilters()); len(lacks) > 0 {
				out = append(out, fmt.Sprintf("fails what goes to %s (%s)", at(field+".backendRefs", j), strings.Join(lacks, ", ")))
			}
		}
		if mirrors(rule) {
			out = append(out, "sends no copies for "+field)
		}
		if rule.GetSessionPersistence() != nil {
			out = append(out, "keeps no sessions for "+field)
		}
		if d, err := Timeout(field, rule.GetBackendRequestTimeout()); err == nil && d > 0 {
			out = append(out, "does not limit single attempts of "+field)
		}
	}
	if len(out) == 0 {
		return ""
	}
	return "a proxy that knows only Linkerd's API " + strings.Join(out, "; it ")
}

// Lacks names the filters, each once, without which a request or its response
// would be another one and for which Linkerd's API has no field.
func (r *Route) Lacks(filters []*busv1.RouteFilter) []string {
	var out []string
	for _, f := range filters {
		t := f.GetType()
		if (t == "URLRewrite" || t == "ResponseHeaderModifier" && r.Kind == GRPC) && !slices.Contains(out, t) {
			out = append(out, t)
		}
	}
	return out
}

func mirrors(rule *busv1.RouteRule) bool {
	is := func(f *busv1.RouteFilter) bool { return f.GetType() == "RequestMirror" }
	return slices.ContainsFunc(rule.GetFilters(), is) ||
		slices.ContainsFunc(rule.GetBackends(), func(b *busv1.BackendRef) bool { return slices.ContainsFunc(b.GetFilters(), is) })
}
