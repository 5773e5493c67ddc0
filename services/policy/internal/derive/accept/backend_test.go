package accept_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
	"github.com/weftmesh/weft/services/policy/internal/derive/accept"
	"github.com/weftmesh/weft/services/policy/internal/derive/route"
)

// TestBackends judges what a route refers to. Where the answer may not use a
// backend, Unresolved says why.
func TestBackends(t *testing.T) {
	const (
		pie    = `kind: "Service" name: "pie" port: 80`
		egress = `group: "policy.linkerd.io" kind: "EgressNetwork" `
	)
	resolved := accept.Condition{Holds: true, Reason: "ResolvedRefs"}
	bad := func(reason, message string) accept.Condition {
		return accept.Condition{Reason: reason, Message: message}
	}
	for text, want := range map[string]struct {
		condition accept.Condition
		why       accept.Why
	}{
		`rules { }`:                       {resolved, 0},
		`rules { backends {` + pie + `}}`: {resolved, 0},
		`rules { backends { group: "core" kind: "Service" name: "pie" port: 80 namespace: "market" }}`: {resolved, 0},
		`rules { backends { kind: "Service" name: "ghost" port: 80 }}`: {
			bad("BackendNotFound", "spec.rules[0].backendRefs[0]: Service grove/ghost does not exist"), accept.NoService,
		},
		`rules { backends { kind: "Service" name: "pie" }}`: {
			bad("BackendNotFound", "spec.rules[0].backendRefs[0]: a Service needs a port"), accept.NoPort,
		},
		// Complaint D16: told, though requests are sent there as Linkerd does; no
		// other port and no other workload gets them.
		`rules { backends { kind: "Service" name: "pie" port: 9999 }}`: {
			bad("BackendNotFound", "spec.rules[0].backendRefs[0]: Service grove/pie has no port 9999"), 0,
		},
		`rules { backends { kind: "Service" name: "elsewhere" port: 80 }}`: {
			bad("BackendNotFound", "spec.rules[0].backendRefs[0]: Service grove/elsewhere is an ExternalName, which is no backend"), accept.ExternalName,
		},
		`rules { backends { kind: "Pod" name: "pie" port: 80 }}`: {
			bad("InvalidKind", `spec.rules[0].backendRefs[0]: "Pod" of group "" is neither a Service nor an EgressNetwork`), accept.InvalidKind,
		},
		`rules { backends {` + egress + `name: "outside" }}`: {
			bad("BackendNotFound", "spec.rules[0].backendRefs[0]: an EgressNetwork can only be the backend of routes that are attached to it"), accept.OtherEgress,
		},
		// The gravest is told, the first of its kind.
		`rules { backends { kind: "Service" name: "ghost" port: 80 }} rules { backends {` + pie + `} backends { kind: "Job" } } rules { backends { kind: "Pod" } }`: {
			bad("InvalidKind", `spec.rules[1].backendRefs[1]: "Job" of group "" is neither a Service nor an EgressNetwork`), accept.InvalidKind,
		},
		`rules { filters { type: "RequestMirror" mirror { backend { kind: "Service" name: "ghost" port: 80 } } } }`: {
			bad("BackendNotFound", "spec.rules[0].filters[0].requestMirror.backendRef: Service grove/ghost does not exist"), accept.NoService,
		},
	} {
		w := newWorld(t)
		got := accept.Routes(w.cluster, w, parent(route.Service, "plum"), []*route.Route{read(t, toPlum+text)})[0]
		if !got.Accepted.Holds {
			t.Errorf("%s: not accepted: %+v", text, got.Accepted)
		}
		if diff := cmp.Diff(&want.condition, got.ResolvedRefs); diff != "" {
			t.Errorf("%s (-want +got):\n%s", text, diff)
		}
		var worst accept.Why
		for _, u := range got.Unresolved {
			if worst == 0 || u.Why < worst {
				worst = u.Why
			}
		}
		if worst != want.why {
			t.Errorf("%s: unresolved because of %d, want %d", text, worst, want.why)
		}
	}
	w := newWorld(t)
	out := read(t, toOut+`rules { backends {`+egress+`name: "outside" } } rules { backends {`+egress+`name: "other" } }`)
	if got := accept.Routes(w.cluster, w, parent(route.EgressNetwork, "outside"), []*route.Route{out})[0]; len(got.Unresolved) != 1 {
		t.Errorf("%d backends of an egress network's route are unresolved, want the other network alone", len(got.Unresolved))
	}
}

// TestGrants is complaint D21 and around it: any entry of any grant is enough;
// without grants about routes a namespace is as open as Linkerd leaves it.
func TestGrants(t *testing.T) {
	from := func(kind, ns string) *busv1.Ref {
		return &busv1.Ref{Group: route.GroupGateway, Kind: kind, Namespace: ns}
	}
	to := func(kind, name string) *busv1.Ref { return &busv1.Ref{Kind: kind, Name: name} }
	grant := func(from []*busv1.Ref, to ...*busv1.Ref) *busv1.ReferenceGrant {
		return &busv1.ReferenceGrant{Namespace: "market", From: from, To: to}
	}
	ours := []*busv1.Ref{from("HTTPRoute", "grove")}
	for name, c := range map[string]struct {
		strict bool
		grants []*busv1.ReferenceGrant
		want   bool
	}{
		"none":                    {false, nil, true},
		"none, strict":            {true, nil, false},
		"about Gateways only":     {false, []*busv1.ReferenceGrant{grant([]*busv1.Ref{{Group: "x", Kind: "Gateway", Namespace: "grove"}}, to("Secret", ""))}, true},
		"all Services":            {false, []*busv1.ReferenceGrant{grant(ours, to("Service", ""))}, true},
		"this Service":            {true, []*busv1.ReferenceGrant{grant(ours, to("Service", "pie"))}, true},
		"another Service":         {false, []*busv1.ReferenceGrant{grant(ours, to("Service", "cake"))}, false},
		"the first of two to":     {false, []*busv1.ReferenceGrant{grant(ours, to("Service", ""), to("ConfigMap", ""))}, true},
		"the last of two from":    {false, []*busv1.ReferenceGrant{grant([]*busv1.Ref{from("GRPCRoute", "grove"), from("HTTPRoute", "grove")}, to("Service", ""))}, true},
		"another namespace":       {false, []*busv1.ReferenceGrant{grant([]*busv1.Ref{from("HTTPRoute", "hill")}, to("Service", ""))}, false},
		"another kind":            {false, []*busv1.ReferenceGrant{grant([]*busv1.Ref{from("GRPCRoute", "grove")}, to("Service", ""))}, false},
		"another group":           {false, []*busv1.ReferenceGrant{grant([]*busv1.Ref{{Group: route.GroupPolicy, Kind: "HTTPRoute", Namespace: "grove"}}, to("Service", ""))}, false},
		"halves of two grants":    {false, []*busv1.ReferenceGrant{grant(ours, to("Secret", "")), grant([]*busv1.Ref{from("HTTPRoute", "hill")}, to("Service", ""))}, false},
		"the second of two":       {false, []*busv1.ReferenceGrant{grant(ours, to("Secret", "")), grant(ours, to("Service", ""))}, true},
		"a group written as core": {false, []*busv1.ReferenceGrant{grant(ours, &busv1.Ref{Group: "core", Kind: "Service"})}, true},
	} {
		w := newWorld(t)
		w.cluster.RequireGrants = c.strict
		w.grants["market"] = c.grants
		r := read(t, toPlum+`rules { backends { kind: "Service" name: "pie" namespace: "market" port: 80 } backends { kind: "Service" name: "pie" namespace: "grove" port: 80 } }`)
		got := accept.Routes(w.cluster, w, parent(route.Service, "plum"), []*route.Route{r})[0]
		if got.ResolvedRefs.Holds != c.want || !c.want && got.ResolvedRefs.Reason != "RefNotPermitted" {
			t.Errorf("%s: %+v", name, *got.ResolvedRefs)
		}
		if (len(got.Unresolved) == 0) != c.want {
			t.Errorf("%s: unresolved %v", name, got.Unresolved)
		}
	}
}

// TestRateLimits lets the oldest hold its Server; broken ones compete for nothing.
func TestRateLimits(t *testing.T) {
	w := newWorld(t)
	target := func(name string) *busv1.Ref { return &busv1.Ref{Group: route.GroupPolicy, Kind: "Server", Name: name} }
	var got []string
	for _, v := range accept.RateLimits(w, []*busv1.RateLimit{
		{Namespace: "grove", Name: "undated", Target: target("web"), Total: 1},
		{Namespace: "grove", Name: "b", CreatedAt: 5, Target: target("web"), Total: 1},
		{Namespace: "grove", Name: "a", CreatedAt: 5, Target: target("web"), Total: 1},
		{Namespace: "grove", Name: "lost", CreatedAt: 1, Target: target("ghost"), Total: 1},
		{Namespace: "grove", Name: "broken", CreatedAt: 1, Target: target("web"), Total: 1, Identity: 2},
		{Namespace: "grove", Name: "abroad", CreatedAt: 1, Target: &busv1.Ref{Group: route.GroupPolicy, Kind: "Server", Name: "web", Namespace: "hill"}},
	}) {
		got = append(got, v.Row.GetName()+" "+v.Accepted.Reason)
	}
	want := []string{
		"abroad UnsupportedValue", "broken UnsupportedValue", "lost NoMatchingTarget", "a Accepted",
		"b RateLimitReasonAlreadyExists", "undated RateLimitReasonAlreadyExists",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
