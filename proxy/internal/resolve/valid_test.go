package resolve

import (
	"net/http"
	"testing"

	routepb "github.com/linkerd/linkerd2-proxy-api/go/http_route"
	typespb "github.com/linkerd/linkerd2-proxy-api/go/http_types"
	outpb "github.com/linkerd/linkerd2-proxy-api/go/outbound"

	routesv1 "github.com/weftmesh/weft/proto/gen/weft/routes/v1"
)

func headers(pairs ...string) *typespb.Headers {
	h := &typespb.Headers{}
	for i := 0; i < len(pairs); i += 2 {
		h.Headers = append(h.Headers, &typespb.Headers_Header{Name: pairs[i], Value: []byte(pairs[i+1])})
	}
	return h
}

// changed are policies whose rule, and whose backend, make a change.
func changed(f *outpb.HttpRoute_Filter) []*outpb.OutboundPolicy {
	rule, backend := detect(), detect()
	route := func(p *outpb.OutboundPolicy) *outpb.HttpRoute_Rule {
		return p.GetProtocol().GetDetect().GetHttp1().GetRoutes()[0].GetRules()[0]
	}
	route(rule).Filters = []*outpb.HttpRoute_Filter{f}
	route(backend).GetBackends().GetFirstAvailable().Backends[0].Filters = []*outpb.HttpRoute_Filter{f}
	return []*outpb.OutboundPolicy{rule, backend}
}

func TestChangesThatHTTPCannotCarry(t *testing.T) {
	for _, tt := range []struct {
		name string
		m    *routepb.RequestHeaderModifier
		ok   bool
	}{
		{"fine", &routepb.RequestHeaderModifier{Add: headers("X-A", "a b\tc", "x-empty", ""), Set: headers("X_b", "\xe9"), Remove: []string{"x.c"}}, true},
		{"nothing", &routepb.RequestHeaderModifier{}, true},
		{"a host", &routepb.RequestHeaderModifier{Set: headers("Host", "web.shop:80")}, true},
		{"an empty name to add", &routepb.RequestHeaderModifier{Add: headers("", "a")}, false},
		{"an empty name to set", &routepb.RequestHeaderModifier{Set: headers("", "a")}, false},
		{"an empty name to remove", &routepb.RequestHeaderModifier{Remove: []string{""}}, false},
		{"a name of two words", &routepb.RequestHeaderModifier{Add: headers("x a", "a")}, false},
		{"a name with a colon", &routepb.RequestHeaderModifier{Set: headers("x:", "a")}, false},
		{"a name of HTTP/2's own", &routepb.RequestHeaderModifier{Set: headers(":path", "/")}, false},
		{"a name beyond ASCII", &routepb.RequestHeaderModifier{Remove: []string{"\u00fc"}}, false},
		{"a name with a line's end", &routepb.RequestHeaderModifier{Add: headers("x\r\ny", "a")}, false},
		{"a value with a line's end", &routepb.RequestHeaderModifier{Add: headers("x", "a\r\ny: b")}, false},
		{"a value with a zero", &routepb.RequestHeaderModifier{Set: headers("x", "a\x00")}, false},
		{"a host that is none", &routepb.RequestHeaderModifier{Set: headers("HOST", "a b")}, false},
	} {
		both := map[string]*outpb.HttpRoute_Filter{
			"a request's":  {Kind: &outpb.HttpRoute_Filter_RequestHeaderModifier{RequestHeaderModifier: tt.m}},
			"a response's": {Kind: &outpb.HttpRoute_Filter_ResponseHeaderModifier{ResponseHeaderModifier: &routepb.ResponseHeaderModifier{Add: tt.m.GetAdd(), Set: tt.m.GetSet(), Remove: tt.m.GetRemove()}}},
		}
		for kind, f := range both {
			for _, p := range changed(f) {
				if got := policyOf(p); (got.Protocol != Invalid) != tt.ok {
					t.Errorf("%s, %s: %v %s", tt.name, kind, got.Protocol, got.Reason)
				}
			}
		}
		if _, err := grpcFilters([]*outpb.GrpcRoute_Filter{{Kind: &outpb.GrpcRoute_Filter_RequestHeaderModifier{RequestHeaderModifier: tt.m}}}); (err == nil) != tt.ok {
			t.Errorf("%s, of gRPC: %v", tt.name, err)
		}
	}
}

func TestRedirectsThatAreNone(t *testing.T) {
	scheme := func(s string) *typespb.Scheme {
		return &typespb.Scheme{Type: &typespb.Scheme_Unregistered{Unregistered: s}}
	}
	full := func(s string) *routepb.PathModifier {
		return &routepb.PathModifier{Replace: &routepb.PathModifier_Full{Full: s}}
	}
	prefix := func(s string) *routepb.PathModifier {
		return &routepb.PathModifier{Replace: &routepb.PathModifier_Prefix{Prefix: s}}
	}
	for _, tt := range []struct {
		name string
		r    *routepb.RequestRedirect
		ok   bool
	}{
		{"all", &routepb.RequestRedirect{Scheme: scheme("HTTPS"), Host: "y.example", Port: 8443, Path: full("/a?b=c"), Status: 308}, true},
		{"nothing", &routepb.RequestRedirect{}, true},
		{"a prefix away", &routepb.RequestRedirect{Path: prefix("")}, true},
		{"a scheme of no kind", &routepb.RequestRedirect{Scheme: &typespb.Scheme{}}, false},
		{"a registered scheme that is not", &routepb.RequestRedirect{Scheme: &typespb.Scheme{Type: &typespb.Scheme_Registered_{Registered: 9}}}, false},
		{"a scheme with a colon", &routepb.RequestRedirect{Scheme: scheme("a:")}, false},
		{"a host with a line's end", &routepb.RequestRedirect{Host: "y\r\nSet-Cookie: a"}, false},
		{"a host with a path", &routepb.RequestRedirect{Host: "y/a"}, false},
		{"a status that leads nowhere", &routepb.RequestRedirect{Host: "y", Status: 200}, false},
		{"a port that is none", &routepb.RequestRedirect{Port: 65536}, false},
		{"a port that is no number of ours", &routepb.RequestRedirect{Port: 1<<32 - 1}, false},
		{"a path of two words", &routepb.RequestRedirect{Path: full("/a b")}, false},
		{"a prefix with a line's end", &routepb.RequestRedirect{Path: prefix("/a\n")}, false},
	} {
		for _, p := range changed(&outpb.HttpRoute_Filter{Kind: &outpb.HttpRoute_Filter_Redirect{Redirect: tt.r}}) {
			if got := policyOf(p); (got.Protocol != Invalid) != tt.ok {
				t.Errorf("%s: %v %s", tt.name, got.Protocol, got.Reason)
			}
		}
	}
}

// A condition that cannot be met, or read, must not become none.
func TestMatchesThatAreNone(t *testing.T) {
	exactly := &routepb.HeaderMatch_Exact{Exact: []byte("1")}
	method := func(s string) *typespb.HttpMethod {
		return &typespb.HttpMethod{Type: &typespb.HttpMethod_Unregistered{Unregistered: s}}
	}
	for _, tt := range []struct {
		name string
		m    *routepb.HttpRouteMatch
		ok   bool
	}{
		{"a header", &routepb.HttpRouteMatch{Headers: []*routepb.HeaderMatch{{Name: "x-a", Value: exactly}}}, true},
		{"a header without name", &routepb.HttpRouteMatch{Headers: []*routepb.HeaderMatch{{Value: exactly}}}, false},
		{"a header of two words", &routepb.HttpRouteMatch{Headers: []*routepb.HeaderMatch{{Name: "x a", Value: exactly}}}, false},
		{"a method of one's own", &routepb.HttpRouteMatch{Method: method("PURGE")}, true},
		{"a method without name", &routepb.HttpRouteMatch{Method: method("")}, false},
		{"a method of no kind", &routepb.HttpRouteMatch{Method: &typespb.HttpMethod{}}, false},
		{"a registered method that is not", &routepb.HttpRouteMatch{Method: &typespb.HttpMethod{Type: &typespb.HttpMethod_Registered_{Registered: 99}}}, false},
	} {
		if _, err := matchOf(tt.m); (err == nil) != tt.ok {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
}

// What Weft adds to a rule fails that rule's requests, or those of its backend.
func TestExtensionsThatHTTPCannotCarry(t *testing.T) {
	for name, f := range map[string]*routesv1.Filters{
		"a header without name":    {ResponseHeaders: &routesv1.HeaderModifier{Set: []*routesv1.Header{{Value: []byte("a")}}}},
		"a removal without name":   {ResponseHeaders: &routesv1.HeaderModifier{Remove: []string{""}}},
		"a host with a line's end": {Rewrite: &routesv1.Rewrite{Host: "a\r\nb"}},
		"a path of two words":      {Rewrite: &routesv1.Rewrite{Path: &routesv1.Rewrite_Full{Full: "/a HTTP/1.1"}}},
		"a prefix of two words":    {Rewrite: &routesv1.Rewrite{Path: &routesv1.Rewrite_Prefix{Prefix: "/a b"}}},
	} {
		p := extended(&routesv1.WatchResponse{Policy: encoded(t, detect()), Extensions: []*routesv1.RuleExtension{{
			Filters: f, Backends: []*routesv1.BackendExtension{{Filters: f}},
		}}})
		rule := p.HTTP1.Routes[0].Rules[0]
		for where, got := range map[string][]Filter{"the rule": rule.Filters, "the backend": rule.Backends.Backends[0].Filters} {
			if len(got) != 1 || got[0].Fail == nil || got[0].Fail.Status != http.StatusInternalServerError {
				t.Errorf("%s of %s: %+v", name, where, got)
			}
		}
	}
	p := extended(&routesv1.WatchResponse{Policy: encoded(t, detect()), Extensions: []*routesv1.RuleExtension{{
		SessionPersistence: &routesv1.SessionPersistence{Name: "a; Domain=b", Kind: routesv1.SessionPersistence_KIND_COOKIE},
	}}})
	if f := p.HTTP1.Routes[0].Rules[0].Filters; len(f) != 1 || f[0].Fail == nil {
		t.Errorf("a cookie's name with attributes: %+v", f)
	}
}
