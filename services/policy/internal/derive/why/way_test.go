package why_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/linkerd/linkerd2-proxy-api/go/outbound"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/types/known/durationpb"

	routesv1 "github.com/weftmesh/weft/proto/gen/weft/routes/v1"
	"github.com/weftmesh/weft/services/policy/internal/derive/why"
)

const (
	toWeb   = `backend { metadata { resource { kind: "Service" namespace: "shop" name: "web" port: 80 } } balancer {} }`
	toNew   = `backend { metadata { resource { kind: "Service" namespace: "shop" name: "web-new" port: 80 } } balancer {} }`
	nowhere = `backend { metadata { default: "invalid" } }`
	shop    = `metadata { resource { group: "core" kind: "Service" namespace: "shop" name: "web" port: 80 } }`
	canary  = `
routes {
  metadata { resource { kind: "HTTPRoute" namespace: "shop" name: "canary" } }
  rules {
    matches { path { prefix: "/v2" } headers { name: "x-user" exact: "amy" } }
    filters { request_header_modifier { remove: "x-user" } }
    backends { random_available {
      backends { weight: 9 backend { ` + toWeb + ` } }
      backends { weight: 1 backend { ` + toNew + ` filters { failure_injector { status: 500 message: "no" } } } }
    } }
    timeouts { request { seconds: 3 } }
    retry { max_retries: 2 }
  }
}
routes {
  metadata { default: "http" }
  rules { matches { path { prefix: "/" } } backends { first_available { backends { ` + toWeb + ` } } } }
}`
)

func TestFollow(t *testing.T) {
	get := func(path string, headers map[string][]string) *why.Request {
		return &why.Request{Method: "GET", Path: path, Host: "web.shop", Headers: headers}
	}
	const parent = "Service shop/web:80"
	amys := []string{
		`request header modifier {"remove":["x-user"]}`,
		"90% to Service shop/web:80", `10% to Service shop/web-new:80, failure injector {"status":500,"message":"no"}`,
		`timeouts: {"request":"3s"}`, `retry: {"maxRetries":2}`,
	}
	for name, c := range map[string]struct {
		policy  string
		beyond  []*routesv1.RuleExtension
		request *why.Request
		route   string
		want    why.Way
	}{
		"the better of two": {shop + `protocol { http1 { ` + canary + ` } }`, nil, get("/v2/x", map[string][]string{"x-user": {"amy"}}), "", why.Way{
			Protocol: "http1", Route: "HTTPRoute shop/canary", Does: amys,
			Routes: []why.RouteReason{
				{"HTTPRoute shop/canary", ""},
				{"default http", "it fits, but HTTPRoute shop/canary fits better, or as well and comes first"},
			},
		}},
		"what Linkerd's API cannot say": {
			shop + `protocol { http1 { ` + canary + ` } }`, []*routesv1.RuleExtension{
				{Route: 0, Rule: 0, AttemptTimeout: durationpb.New(time.Second)},
				{Route: 1, Rule: 0, SessionPersistence: &routesv1.SessionPersistence{Name: "crumb"}, Filters: &routesv1.Filters{
					Rewrite: &routesv1.Rewrite{Host: "b"}, Mirrors: []*routesv1.Mirror{{Numerator: 1, Denominator: 2, Backend: []byte("x")}},
				}, Backends: []*routesv1.BackendExtension{{Filters: &routesv1.Filters{ResponseHeaders: &routesv1.HeaderModifier{Remove: []string{"x"}}}}}},
			}, get("/", nil), "", why.Way{
				Protocol: "http1", Route: "default http", Does: []string{
					"goes to Service shop/web:80", `rewrite {"host":"b"}`, "copies of 1 in 2 to a backend",
					`backend 1: response header modifier {"remove":["x"]}`, `session persistence {"name":"crumb"}`,
				},
				Routes: []why.RouteReason{{"HTTPRoute shop/canary", "path / does not fit prefix /v2"}, {"default http", ""}},
			},
		},
		"a header that is missing": {shop + `protocol { detect { http1 { ` + canary + ` failure_accrual { consecutive_failures { max_failures: 7 } } } } }`, nil, get("/v2", nil), "", why.Way{
			Protocol: "detect", Route: "default http", Does: []string{
				`breaks circuits: {"consecutiveFailures":{"maxFailures":7}}`, "goes to Service shop/web:80",
			},
			Routes: []why.RouteReason{{"HTTPRoute shop/canary", "header x-user does not fit"}, {"default http", ""}},
		}},
		"only the route is known": {shop + `protocol { http2 { ` + canary + ` } }`, nil, nil, "HTTPRoute shop/canary", why.Way{
			Protocol: "http2", Route: "HTTPRoute shop/canary", Does: amys,
			Routes: []why.RouteReason{{"HTTPRoute shop/canary", ""}, {"default http", "that depends on the request"}},
		}},
		"a route that has gone": {shop + `protocol { http2 { ` + canary + ` } }`, nil, nil, "HTTPRoute shop/old", why.Way{
			Protocol: "http2", Unknown: true, Reason: "HTTPRoute shop/old is not among the routes: which of them takes its requests depends on them",
			Routes: []why.RouteReason{{"HTTPRoute shop/canary", "that depends on the request"}, {"default http", "that depends on the request"}},
		}},
		"nothing is known": {shop + `protocol { grpc { routes { metadata { default: "grpc" } rules {} } } }`, nil, nil, "", why.Way{
			Protocol: "grpc", Unknown: true, Reason: "name a request: which route takes it depends on that",
			Routes: []why.RouteReason{{"default grpc", "that depends on the request"}},
		}},
		"nothing is known, and nothing there": {shop + `protocol { grpc { } }`, nil, nil, "", why.Way{
			Protocol: "grpc", Reason: "there are no routes: none takes a request",
		}},
		"a route that was the last": {shop + `protocol { tls { } }`, nil, nil, "TLSRoute shop/old", why.Way{
			Protocol: "tls", Reason: "there are no routes: none takes a request",
		}},
		"no route": {shop + `protocol { grpc { routes {
			metadata { resource { kind: "GRPCRoute" namespace: "shop" name: "a" } } rules { matches { rpc { service: "a.B" method: "C" } } }
		} } }`, nil, &why.Request{Method: "POST", Path: "/a.B/D"}, "", why.Way{
			Protocol: "grpc", Reason: "no route matches the request: the answer is 404, of gRPC NOT_FOUND",
			Routes: []why.RouteReason{{"GRPCRoute shop/a", "call /a.B/D does not fit /a.B/C"}},
		}},
		"a browser is no gRPC client": {shop + `protocol { grpc { routes { metadata { default: "grpc" } rules {} } } }`, nil, get("/", nil), "", why.Way{
			Protocol: "grpc", Reason: "no route matches the request: the answer is 404, of gRPC NOT_FOUND",
			Routes: []why.RouteReason{{"default grpc", "it takes gRPC calls, which are of method POST"}},
		}},
		"bytes": {shop + `protocol { opaque {
			routes { metadata { resource { kind: "TCPRoute" namespace: "shop" name: "a" } } rules { backends { first_available { backends { ` + toNew + ` } } } } }
			routes { metadata { default: "opaq" } rules { backends { first_available { backends { ` + toWeb + ` } } } } }
		} }`, nil, nil, "", why.Way{
			Protocol: "opaque", Route: "TCPRoute shop/a", Does: []string{"goes to Service shop/web-new:80"},
			Routes: []why.RouteReason{{"TCPRoute shop/a", ""}, {"default opaq", "a connection takes the first route"}},
		}},
		"an undefined port": {shop + `protocol { opaque { routes { metadata { default: "undefined-port" } rules { filters { forbidden {} } backends { empty {} } } } } }`, nil, nil, "", why.Way{
			Protocol: "opaque", Route: "default undefined-port", Does: []string{"forbidden {}", "goes nowhere"},
			Routes: []why.RouteReason{{"default undefined-port", ""}},
		}},
		"a server name": {shop + `protocol { tls {
			routes { metadata { resource { kind: "TLSRoute" namespace: "shop" name: "any" } } snis { suffix { reverse_labels: "com" } } rules { backends { first_available { backends { ` + toWeb + ` } } } } }
			routes { metadata { resource { kind: "TLSRoute" namespace: "shop" name: "one" } } snis { exact: "a.com" } rules { backends { random_available { backends { weight: 1 backend { ` + nowhere + ` filters { invalid { message: "gone" } } } } } } } }
		} }`, nil, &why.Request{Host: "a.com"}, "", why.Way{
			Protocol: "tls", Route: "TLSRoute shop/one", Does: []string{`100% to default invalid, which is of no use, invalid {"message":"gone"}`},
			Routes: []why.RouteReason{
				{"TLSRoute shop/any", "it fits, but TLSRoute shop/one fits better, or as well and comes first"}, {"TLSRoute shop/one", ""},
			},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			p := &outbound.OutboundPolicy{}
			if err := prototext.Unmarshal([]byte(c.policy), p); err != nil {
				t.Fatal(err)
			}
			c.want.Parent = parent
			got := why.Follow(p, c.beyond, c.request, c.route)
			if diff := cmp.Diff(c.want, got, cmpopts.IgnoreFields(why.Way{}, "Rules")); diff != "" {
				t.Errorf("Follow (-want +got):\n%s", diff)
			}
			if !got.Same(why.Follow(p, c.beyond, c.request, c.route)) {
				t.Error("a way is not the same as itself")
			}
		})
	}
}

// FuzzFollow goes by answers that no controller would send.
func FuzzFollow(f *testing.F) {
	f.Add(shop+`protocol { http1 { `+canary+` } }`, "/v2", "web")
	f.Add(`protocol { tls { routes { rules { backends { random_available { backends { } } } } } } }`, "/", "a")
	f.Fuzz(func(t *testing.T, raw, path, host string) {
		p := &outbound.OutboundPolicy{}
		if prototext.Unmarshal([]byte(raw), p) != nil {
			return // not what this is about
		}
		r := &why.Request{Method: "POST", Path: path, Host: host}
		if w := why.Follow(p, nil, r, ""); !w.Same(why.Follow(p, nil, r, "")) {
			t.Errorf("%v leads elsewhere the second time", p)
		}
		why.Follow(p, nil, nil, host)
	})
}
