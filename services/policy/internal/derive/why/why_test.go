package why_test

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/linkerd/linkerd2-proxy-api/go/inbound"
	"google.golang.org/protobuf/encoding/prototext"

	"github.com/weftmesh/weft/services/policy/internal/derive/why"
)

const authorizations = `
authorizations {
  labels { key: "kind" value: "authorizationpolicy" } labels { key: "name" value: "amy" }
  networks { net { ip { ipv4: 0x0a000000 } prefix_len: 8 } except { ip { ipv4: 0x0a010000 } prefix_len: 16 } }
  authentication { meshTLS { identities { identities { name: "amy.grove" } identities { name: "spiffe://root/amy" } } } }
}
authorizations {
  labels { key: "kind" value: "authorizationpolicy" } labels { key: "name" value: "market" }
  networks { net { ip { ipv4: 0 } prefix_len: 0 } }
  authentication { meshTLS { identities { suffixes { parts: "market" } } } }
}
authorizations {
  labels { key: "kind" value: "serverauthorization" } labels { key: "name" value: "tls" }
  networks { net { ip { ipv4: 0xc0000200 } prefix_len: 24 } }
  authentication { meshTLS { unauthenticated {} } }
}
labels { key: "kind" value: "server" } labels { key: "name" value: "web" }
`

const routes = `
protocol { http1 {
  routes {
    metadata { resource { kind: "HTTPRoute" name: "all" } }
    rules { matches { path { prefix: "/" } } }
  }
  routes {
    metadata { resource { kind: "HTTPRoute" name: "open" } }
    authorizations {
      labels { key: "kind" value: "authorizationpolicy" } labels { key: "name" value: "everyone" }
      networks { net { ip { ipv4: 0 } } }
      authentication { unauthenticated {} }
    }
    rules { matches { path { exact: "/open" } method { registered: GET } } matches { path { prefix: "/pub" } headers { name: "x-hue" regex: "r.*" } } }
  }
  routes {
    metadata { resource { kind: "HTTPRoute" name: "host" } }
    hosts { suffix { reverse_labels: "com" reverse_labels: "example" } }
    rules { }
  }
} }
`

func server(t *testing.T, text string) *inbound.Server {
	t.Helper()
	s := &inbound.Server{}
	if err := prototext.Unmarshal([]byte(text), s); err != nil {
		t.Fatal(err)
	}
	return s
}

func TestExplain(t *testing.T) {
	const (
		opaque = `protocol { opaque {} }` + authorizations
		http   = routes + authorizations
	)
	get := func(path string) *why.Request { return &why.Request{Method: "GET", Path: path, Host: "web.grove"} }
	for name, c := range map[string]struct {
		server string
		client why.Client
		want   why.Verdict
	}{
		"an exact identity": {opaque, why.Client{Identity: "amy.grove"}, why.Verdict{
			Outcome: why.Allowed, By: "authorizationpolicy amy", Rules: []why.Rule{
				{Name: "authorizationpolicy amy"},
				{Name: "authorizationpolicy market", Reason: "amy.grove is not among its identities"},
				{Name: "serverauthorization tls", Reason: "10.2.3.4 is not in its networks"},
			},
		}},
		"a suffix of names": {opaque, why.Client{Identity: "bob.market"}, why.Verdict{
			Outcome: why.Allowed, By: "authorizationpolicy market", Rules: []why.Rule{
				{Name: "authorizationpolicy amy", Reason: "bob.market is not among its identities"},
				{Name: "authorizationpolicy market"},
				{Name: "serverauthorization tls", Reason: "10.2.3.4 is not in its networks"},
			},
		}},
		"an exception": {opaque, why.Client{Identity: "amy.grove", Address: netip.MustParseAddr("10.1.0.1")}, why.Verdict{
			Rules: []why.Rule{
				{Name: "authorizationpolicy amy", Reason: "10.1.0.1 is not in its networks"},
				{Name: "authorizationpolicy market", Reason: "amy.grove is not among its identities"},
				{Name: "serverauthorization tls", Reason: "10.1.0.1 is not in its networks"},
			},
		}},
		"TLS without an identity": {opaque, why.Client{TLS: true, Address: netip.MustParseAddr("192.0.2.7")}, why.Verdict{
			Outcome: why.Allowed, By: "serverauthorization tls", Rules: []why.Rule{
				{Name: "authorizationpolicy amy", Reason: "192.0.2.7 is not in its networks"},
				{Name: "authorizationpolicy market", Reason: "it asks for an identity"},
				{Name: "serverauthorization tls"},
			},
		}},
		"its own pod": {opaque, why.Client{Address: netip.MustParseAddr("127.0.0.1")}, why.Verdict{
			Outcome: why.Allowed, By: "default localhost", Rules: []why.Rule{
				{Name: "authorizationpolicy amy", Reason: "127.0.0.1 is not in its networks"},
				{Name: "authorizationpolicy market", Reason: "it asks for mesh TLS"},
				{Name: "serverauthorization tls", Reason: "127.0.0.1 is not in its networks"},
			},
		}},
		"nothing written": {`protocol { opaque {} } labels { key: "kind" value: "server" } labels { key: "name" value: "web" }`, why.Client{}, why.Verdict{
			Reason: "there is no authorization",
		}},
		"a route of its own": {http, why.Client{Request: get("/open?x=1")}, why.Verdict{
			Outcome: why.Allowed, Route: "HTTPRoute open", By: "authorizationpolicy everyone", Routes: []why.RouteReason{
				{"HTTPRoute all", "it fits, but HTTPRoute open fits better, or as well and comes first"},
				{"HTTPRoute open", ""},
				{"HTTPRoute host", `"web.grove" is none of its host names`},
			}, Rules: []why.Rule{
				{Name: "authorizationpolicy amy", Reason: "it asks for mesh TLS"},
				{Name: "authorizationpolicy market", Reason: "it asks for mesh TLS"},
				{Name: "serverauthorization tls", Reason: "10.2.3.4 is not in its networks"},
				{Name: "authorizationpolicy everyone", Route: true},
			},
		}},
		"the longest prefix, no rule": {http, why.Client{Request: get("/public")}, why.Verdict{
			Route: "HTTPRoute all", Routes: []why.RouteReason{
				{"HTTPRoute all", ""},
				{"HTTPRoute open", "path /public does not fit exactly /open"},
				{"HTTPRoute host", `"web.grove" is none of its host names`},
			}, Rules: []why.Rule{
				{Name: "authorizationpolicy amy", Reason: "it asks for mesh TLS"},
				{Name: "authorizationpolicy market", Reason: "it asks for mesh TLS"},
				{Name: "serverauthorization tls", Reason: "10.2.3.4 is not in its networks"},
			},
		}},
		"a header": {http, why.Client{Identity: "amy.grove", Request: &why.Request{
			Method: "POST", Path: "/pub/x", Headers: map[string][]string{"x-hue": {"blue", "red"}},
		}}, why.Verdict{
			Outcome: why.Allowed, Route: "HTTPRoute open", By: "authorizationpolicy amy", Routes: []why.RouteReason{
				{"HTTPRoute all", "it fits, but HTTPRoute open fits better, or as well and comes first"},
				{"HTTPRoute open", ""},
				{"HTTPRoute host", `"" is none of its host names`},
			}, Rules: []why.Rule{
				{Name: "authorizationpolicy amy"},
				{Name: "authorizationpolicy market", Reason: "amy.grove is not among its identities"},
				{Name: "serverauthorization tls", Reason: "10.2.3.4 is not in its networks"},
				{Name: "authorizationpolicy everyone", Route: true},
			},
		}},
		"a host before a path": {http, why.Client{Identity: "amy.grove", Request: &why.Request{Method: "GET", Path: "/open", Host: "A.Example.com:80"}}, why.Verdict{
			Outcome: why.Allowed, Route: "HTTPRoute host", By: "authorizationpolicy amy", Routes: []why.RouteReason{
				{"HTTPRoute all", "it fits, but HTTPRoute host fits better, or as well and comes first"},
				{"HTTPRoute open", "it fits, but HTTPRoute host fits better, or as well and comes first"},
				{"HTTPRoute host", ""},
			}, Rules: []why.Rule{
				{Name: "authorizationpolicy amy"},
				{Name: "authorizationpolicy market", Reason: "amy.grove is not among its identities"},
				{Name: "serverauthorization tls", Reason: "10.2.3.4 is not in its networks"},
			},
		}},
		"no route": {
			`protocol { grpc { routes { metadata { default: "probe" } rules { matches { rpc { service: "a.B" method: "C" } } } } } }` + authorizations,
			why.Client{Request: &why.Request{Method: "POST", Path: "/a.B/D"}},
			why.Verdict{
				Outcome: why.NoRoute, Reason: "no route of the server matches the request",
				Routes: []why.RouteReason{{"default probe", "call /a.B/D does not fit /a.B/C"}},
			},
		},
		"bytes where HTTP is asked for": {http, why.Client{}, why.Verdict{Reason: "the server takes only HTTP"}},
	} {
		t.Run(name, func(t *testing.T) {
			if !c.client.Address.IsValid() {
				c.client.Address = netip.MustParseAddr("::ffff:10.2.3.4")
			}
			c.want.Server = "server web"
			if diff := cmp.Diff(c.want, why.Explain(server(t, c.server), c.client)); diff != "" {
				t.Errorf("Explain (-want +got):\n%s", diff)
			}
		})
	}
}

// TestExplainWhatIsKnown judges clients of which the metrics of proxies do not
// tell everything.
func TestExplainWhatIsKnown(t *testing.T) {
	const everyone = `authorizations {
  labels { key: "kind" value: "serverauthorization" } labels { key: "name" value: "all" }
  networks { net { ip { ipv4: 0 } } } networks { net { ip { ipv6 {} } } }
  authentication { unauthenticated {} }
}`
	for name, c := range map[string]struct {
		server      string
		client      why.Client
		outcome     why.Outcome
		by, because string
	}{
		"no address, all networks": {
			`protocol { opaque {} }` + everyone, why.Client{}, why.Allowed, "serverauthorization all", "",
		},
		"no address, all of one family": {
			`protocol { opaque {} }` + authorizations, why.Client{Identity: "bob.market"}, why.Unknown, "", "it depends on the client's address, which is not known",
		},
		"no address, and the identity is of no use": {
			`protocol { opaque {} }` + authorizations, why.Client{}, why.Denied, "", "",
		},
		"no address, and a later rule lets it in whatever it is": {
			`protocol { opaque {} }` + authorizations + everyone, why.Client{Identity: "amy.grove"}, why.Allowed, "serverauthorization all", "",
		},
		"a route and no request": {
			routes + authorizations, why.Client{Address: netip.MustParseAddr("10.2.3.4"), Route: "HTTPRoute open"}, why.Allowed, "authorizationpolicy everyone", "",
		},
		"a route that has gone": {
			routes, why.Client{Route: "HTTPRoute gone"}, why.Unknown, "", "HTTPRoute gone is not among the routes: which of them takes its requests depends on them",
		},
	} {
		v := why.Explain(server(t, c.server), c.client)
		if v.Outcome != c.outcome || v.By != c.by || v.Reason != c.because {
			t.Errorf("%s: %v by %q: %q, want %v by %q: %q", name, v.Outcome, v.By, v.Reason, c.outcome, c.by, c.because)
		}
	}
}

// TestURIsMatchExactlyOnly keeps SPIFFE identities out of every suffix, the empty
// one of all-authenticated too (spec/proxy.md §10.3).
func TestURIsMatchExactlyOnly(t *testing.T) {
	s := server(t, `protocol { opaque {} } authorizations {
  networks { net { ip { ipv4: 0 } } }
  authentication { meshTLS { identities { identities { name: "spiffe://root/amy" } suffixes { } } } }
}`)
	for identity, want := range map[string]why.Outcome{
		"spiffe://root/amy": why.Allowed, "spiffe://root/bob": why.Denied, "anybody": why.Allowed,
	} {
		if got := why.Explain(s, why.Client{Address: netip.MustParseAddr("10.0.0.1"), Identity: identity}).Outcome; got != want {
			t.Errorf("%s is %v, want %v", identity, got, want)
		}
	}
}

// FuzzExplain judges by answers that no controller would send.
func FuzzExplain(f *testing.F) {
	for _, text := range []string{routes + authorizations, `protocol { opaque {} }` + authorizations} {
		s := &inbound.Server{}
		if err := prototext.Unmarshal([]byte(text), s); err != nil {
			f.Fatal(err)
		}
		raw, err := prototext.MarshalOptions{}.Marshal(s)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw, "/open", "web", "amy.grove", []byte{10, 0, 0, 1})
	}
	f.Fuzz(func(t *testing.T, raw []byte, path, host, identity string, ip []byte) {
		s := &inbound.Server{}
		if prototext.Unmarshal(raw, s) != nil {
			return // not what this is about
		}
		a, _ := netip.AddrFromSlice(ip)
		v := why.Explain(s, why.Client{Address: a, Identity: identity, Request: &why.Request{Method: "POST", Path: path, Host: host}})
		if v.Outcome == why.Allowed && !a.Unmap().IsLoopback() && len(s.GetAuthorizations()) == 0 && len(v.Rules) == 0 {
			t.Errorf("%v let somebody in", s)
		}
	})
}
