package route_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/linkerd/linkerd2-proxy-api/go/inbound"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"

	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
	"github.com/weftmesh/weft/services/policy/internal/derive"
	"github.com/weftmesh/weft/services/policy/internal/derive/route"
)

func row(t testing.TB, text string) *busv1.Route {
	t.Helper()
	r := &busv1.Route{Namespace: "grove", Name: "gate", Kind: "HTTPRoute", Group: route.GroupGateway}
	extra := &busv1.Route{}
	if err := prototext.Unmarshal([]byte(text), extra); err != nil {
		t.Fatal(err)
	}
	proto.Merge(r, extra)
	return r
}

// TestHostsIgnoreCase is complaint D10: hosts that differ by case alone are one
// host, and no reason to refuse anything.
func TestHostsIgnoreCase(t *testing.T) {
	upper, err := route.Hosts(row(t, `hostnames: "FOO.Example.COM" hostnames: "*.A.b" hostnames: "*.a.B" hostnames: "foo.example.com"`))
	if err != nil {
		t.Fatal(err)
	}
	lower, err := route.Hosts(row(t, `hostnames: "foo.example.com." hostnames: "*.a.B"`))
	if err != nil {
		t.Fatal(err)
	}
	for i := range upper {
		if !proto.Equal(upper[i], lower[i]) {
			t.Errorf("host %d: %v and %v differ", i, upper[i], lower[i])
		}
	}
	if len(upper) != 2 || len(lower) != 2 {
		t.Fatalf("%d and %d hosts, want each once", len(upper), len(lower))
	}
	if got := upper[0].GetExact(); got != "foo.example.com" {
		t.Errorf("exact host %q", got)
	}
	if diff := cmp.Diff([]string{"b", "a"}, upper[1].GetSuffix().GetReverseLabels()); diff != "" {
		t.Errorf("suffix (-want +got):\n%s", diff)
	}
}

func TestTimeout(t *testing.T) {
	for in, want := range map[string]time.Duration{
		"": 0, "0s": 0, "10s": 10 * time.Second, "1h30m": 90 * time.Minute, "500ms": 500 * time.Millisecond,
		"1.5s": -1, "-1s": -1, "10": -1, "100000s": -1, "1s1s1s1s1s": -1, "1d": -1,
	} {
		got, err := route.Timeout("field", in)
		if err != nil {
			got = -1
			if !strings.HasPrefix(err.Error(), "field: ") {
				t.Errorf("Timeout(%q) does not name its field: %v", in, err)
			}
		}
		if got != want {
			t.Errorf("Timeout(%q) = %v, want %v", in, got, want)
		}
	}
}

// TestOutboundProblems names, for routes on Services, the field that is wrong.
func TestOutboundProblems(t *testing.T) {
	const service = `parents { kind: "Service" name: "plum" } `
	for text, want := range map[string]string{
		`rules { }`: "",
		`rules { filters { type: "URLRewrite" rewrite { hostname: "x" path { type: "ReplacePrefixMatch" value: "/" } } } }`:    "",
		`rules { filters { type: "RequestMirror" mirror { backend { name: "x" } numerator: 1 denominator: 2 } } }`:             "",
		`rules { filters { type: "RequestMirror" mirror { numerator: 3 denominator: 2 } } }`:                                   "spec.rules[0].filters[0].requestMirror.fraction",
		`rules { backends { filters { type: "ExtensionRef" } } }`:                                                              "spec.rules[0].backendRefs[0].filters[0].type",
		`rules { backends { } backends { filters { type: "ResponseHeaderModifier" response_headers { set { name: "" } } } } }`: "spec.rules[0].backendRefs[1].filters[0].responseHeaderModifier.set[0].name",
		`rules { filters { type: "RequestHeaderModifier" request_headers { remove: "a b" } } }`:                                "spec.rules[0].filters[0].requestHeaderModifier.remove[0]",
		`rules { filters { type: "RequestRedirect" redirect { scheme: "ftp" } } }`:                                             "spec.rules[0].filters[0].requestRedirect.scheme",
		`rules { filters { type: "RequestRedirect" redirect { status: 200 } } }`:                                               "spec.rules[0].filters[0].requestRedirect.statusCode",
		`rules { filters { type: "RequestRedirect" redirect { port: 70000 } } }`:                                               "spec.rules[0].filters[0].requestRedirect.port",
		`rules { filters { type: "RequestRedirect" redirect { hostname: "a b" } } }`:                                           "spec.rules[0].filters[0].requestRedirect.hostname",
		`rules { request_timeout: "soon" }`:                                                                                    "spec.rules[0].timeouts.request",
		`rules { request_timeout: "1s" backend_request_timeout: "2s" }`:                                                        "spec.rules[0].timeouts.backendRequest",
		`rules { request_timeout: "0s" backend_request_timeout: "2s" }`:                                                        "",
		`rules { session_persistence { type: "Magic" } }`:                                                                      "spec.rules[0].sessionPersistence.type",
		`rules { session_persistence { idle_timeout: "x" } }`:                                                                  "spec.rules[0].sessionPersistence.idleTimeout",
		`annotations { key: "retry.linkerd.io/http" value: "6xx" } rules { }`:                                                  "metadata.annotations[retry.linkerd.io/http]",
		`annotations { key: "retry.linkerd.io/limit" value: "-1" } rules { }`:                                                  "metadata.annotations[retry.linkerd.io/limit]",
		`annotations { key: "timeout.linkerd.io/idle" value: "1.5s" } rules { }`:                                               "metadata.annotations[timeout.linkerd.io/idle]",
		`kind: "GRPCRoute" annotations { key: "retry.linkerd.io/grpc" value: "sometimes" } rules { }`:                          "metadata.annotations[retry.linkerd.io/grpc]",
		`kind: "GRPCRoute" rules { filters { type: "URLRewrite" rewrite { } } }`:                                               "spec.rules[0].filters[0].type",
		`kind: "TCPRoute" rules { } rules { }`:                                                                                 "spec.rules",
		`kind: "TLSRoute" rules { } hostnames: "-"`:                                                                            "spec.hostnames[0]",
		`rules { matches { path { type: "RegularExpression" value: "` + strings.Repeat("a", 5000) + `" } } }`:                  "spec.rules[0].matches[0].path.value",
		`rules { matches { path { type: "RegularExpression" value: "(?:` + strings.Repeat("a?", 500) + `){1000}" } } }`:        "spec.rules[0].matches[0].path.value",
		`rules { matches { path { type: "RegularExpression" value: "/(a{30}){20,}" } } }`:                                      "",
		`rules { matches { path { type: "RegularExpression" value: "/(a{30}){10}b{0,1000}|[a-z]{900}(.*x|y+)?" } } }`:          "",
		`rules { matches { path { type: "RegularExpression" value: "/(ab{20}c){40,}(a{30}){30}(a{31}){31}(.{40}){20}(x{100}yz?){9}(((a{9}){9}){9}(x{500}yy){2}){1}(ab{400}){2}(ab{400}){2}(ab{400}){2}(ab{400}){2}(ab{400}){2}(ab{400}){2}" } } }`: "spec.rules[0].matches[0].path.value",
		`rules { matches { method: "GET" } matches { headers { name: "a" type: "Glob" } } }`:                                          "spec.rules[0].matches[1].headers[0].type",
		`rules { matches { query_params { name: "a" type: "RegularExpression" value: "(" } } }`:                                       "spec.rules[0].matches[0].queryParams[0].value",
		`kind: "GRPCRoute" rules { matches { grpc { service: "a/b" } } }`:                                                             "spec.rules[0].matches[0].method",
		`rules { matches { path { type: "Exact" value: "/a" } headers { name: "A" value: "1" } } filters { type: "ExtensionRef" } } `: "spec.rules[0].filters[0].type",
	} {
		r := route.New(row(t, service+text))
		if r.Inbound != nil {
			t.Errorf("%s: a route without a Server has the inbound problem %v", text, r.Inbound)
		}
		switch got := r.Outbound; {
		case got == nil && want != "" || got != nil && !strings.HasPrefix(got.Error(), want+": "):
			t.Errorf("%s: problem %v, want one of %s", text, got, want)
		case got != nil && len(got.Error()) > 400:
			t.Errorf("%s: the message is %d characters long", text, len(got.Error()))
		}
	}
}

// TestOlder puts routes in one order whatever they are, the undated last.
func TestOlder(t *testing.T) {
	older := []*route.Route{
		route.New(row(t, `created_at: 1 name: "z"`)), route.New(row(t, `created_at: 2 name: "a"`)), route.New(row(t, `created_at: 2 name: "a" group: "policy.linkerd.io"`)),
		route.New(row(t, `created_at: 2 name: "b"`)), route.New(row(t, `name: "a"`)),
	}
	for i := range older {
		for j := range older {
			got := route.Older(older[i], older[j])
			if i < j && got >= 0 || i == j && got != 0 || i > j && got <= 0 {
				t.Errorf("Older(%d, %d) = %d", i, j, got)
			}
		}
	}
}

// FuzzRoute reads routes of any bytes, as they come with the webhook off. What
// passes the checks can be converted and encoded.
func FuzzRoute(f *testing.F) {
	for _, text := range []string{
		`parents { group: "policy.linkerd.io" kind: "Server" name: "s" } rules { matches { path { type: "Exact" value: "/a" } method: "GET" } filters { type: "RequestRedirect" redirect { scheme: "https" } } }`,
		`kind: "GRPCRoute" parents { group: "policy.linkerd.io" kind: "Server" name: "s" } rules { matches { grpc { service: "a" } headers { name: "x" value: "y" } } }`,
		`kind: "TLSRoute" hostnames: "*.a" parents { kind: "Service" name: "s" port: 70000 } rules { backends { kind: "Service" name: "x" port: 80 } }`,
		`parents { kind: "Service" name: "s" } rules { filters { type: "RequestMirror" mirror { backend { name: "x" } } } session_persistence { type: "Cookie" } request_timeout: "1s" }`,
	} {
		raw, err := proto.Marshal(row(f, text))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		m := &busv1.Route{}
		if proto.Unmarshal(raw, m) != nil {
			return // not what this is about
		}
		r := route.New(m)
		_ = r.String()
		onServer := false
		for _, p := range r.Parents() {
			_ = p.String()
			onServer = onServer || p.Kind == route.Server
		}
		if !onServer || r.Inbound != nil || r.Kind != route.HTTP {
			return
		}
		hosts, err := route.Hosts(m)
		if err != nil {
			t.Fatal(err)
		}
		out := &inbound.HttpRoute{Hosts: hosts}
		for _, rule := range m.GetRules() {
			matches, err := route.HTTPMatches("", rule)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := route.InboundFilters(r.Kind, "", rule); err != nil {
				t.Fatal(err)
			}
			out.Rules = append(out.Rules, &inbound.HttpRoute_Rule{Matches: matches})
		}
		if _, err := derive.Seal(out); err != nil {
			t.Fatal(err)
		}
	})
}
