package derive_test

import (
	"testing"

	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
	"github.com/weftmesh/weft/services/policy/internal/derive/accept"
	"github.com/weftmesh/weft/services/policy/internal/derive/allow"
	"github.com/weftmesh/weft/services/policy/internal/derive/route"
)

// of keeps the rows of one namespace.
func of[M interface{ GetNamespace() string }](rows []M, ns string) []M {
	var out []M
	for _, row := range rows {
		if row.GetNamespace() == ns {
			out = append(out, row)
		}
	}
	return out
}

// inbound answers what is asked about a port of a workload.
func (w *world) inbound(t *testing.T, key, ns string, port uint16) string {
	t.Helper()
	row := w.workloads[key]
	if row == nil || w.templates[row.GetTemplate()] == nil {
		t.Fatalf("%s is not in the file", key)
	}
	policies, refused := w.namespace(ns)
	in := allow.Input{
		Workload: allow.NewWorkload(row),
		Template: allow.NewTemplate(w.templates[row.GetTemplate()]),
		Policies: policies,
	}
	return render(t, allow.Answer(w.cluster, in, port)) +
		complaints(in.Template.Problems) + complaints(in.Policies.Problems) + refused
}

// namespace joins what one namespace says, and tells what is refused.
func (w *world) namespace(ns string) (policies *allow.Policies, refused string) {
	objects := allow.Objects{
		Servers:        of(w.servers, ns),
		Policies:       of(w.policies, ns),
		Authorizations: of(w.server, ns),
		Routes:         map[string][]*route.Route{},
	}
	for _, s := range objects.Servers {
		verdicts := w.judge(route.Parent{Kind: route.Server, Namespace: ns, Name: s.GetName()})
		refused += refusals(verdicts)
		for _, v := range verdicts {
			if v.Accepted.Holds {
				objects.Routes[s.GetName()] = append(objects.Routes[s.GetName()], v.Route)
			}
		}
	}
	for _, v := range accept.RateLimits(w, of[*busv1.RateLimit](w.limits, ns)) {
		if v.Accepted.Holds {
			objects.Limits = append(objects.Limits, v.Row)
			continue
		}
		refused += "refused: rate limit " + v.Row.GetName() + ": " + v.Accepted.Reason + ": " + v.Accepted.Message + "\n"
	}
	return allow.Resolve(w.cluster, objects, w), refused
}
