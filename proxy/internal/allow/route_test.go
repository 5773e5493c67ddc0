package allow

import (
	"net/http"
	"net/url"
	"testing"
	"time"

	grpcpb "github.com/linkerd/linkerd2-proxy-api/go/grpc_route"
	httppb "github.com/linkerd/linkerd2-proxy-api/go/http_route"
	typepb "github.com/linkerd/linkerd2-proxy-api/go/http_types"
	pb "github.com/linkerd/linkerd2-proxy-api/go/inbound"

	"github.com/weftmesh/weft/proxy/internal/change"
)

func exactPath(s string) *httppb.PathMatch {
	return &httppb.PathMatch{Kind: &httppb.PathMatch_Exact{Exact: s}}
}

func prefixPath(s string) *httppb.PathMatch {
	return &httppb.PathMatch{Kind: &httppb.PathMatch_Prefix{Prefix: s}}
}

func regexPath(s string) *httppb.PathMatch {
	return &httppb.PathMatch{Kind: &httppb.PathMatch_Regex{Regex: s}}
}

// named makes a route of one rule.
func named(name string, hosts []*httppb.HostMatch, matches ...*httppb.HttpRouteMatch) *pb.HttpRoute {
	return &pb.HttpRoute{
		Metadata: authz(name, nil).GetMetadata(), Hosts: hosts,
		Rules:          []*pb.HttpRoute_Rule{{Matches: matches}},
		Authorizations: []*pb.Authz{authz(name, unauthenticated())},
	}
}

func exactHost(s string) []*httppb.HostMatch {
	return []*httppb.HostMatch{{Match: &httppb.HostMatch_Exact{Exact: s}}}
}

func suffixHost(labels ...string) []*httppb.HostMatch {
	return []*httppb.HostMatch{{Match: &httppb.HostMatch_Suffix_{Suffix: &httppb.HostMatch_Suffix{ReverseLabels: labels}}}}
}

func get(method, host, target string, headers ...string) Request {
	u, err := url.ParseRequestURI(target)
	if err != nil {
		panic(err)
	}
	h := http.Header{}
	for i := 0; i < len(headers); i += 2 {
		h.Add(headers[i], headers[i+1])
	}
	return Request{
		Method: method, Authority: host, Path: u.EscapedPath(), Header: h.Values,
		Query: func(name string) []string { return u.Query()[name] },
	}
}

func TestRoutes(t *testing.T) {
	post := &typepb.HttpMethod{Type: &typepb.HttpMethod_Registered_{Registered: typepb.HttpMethod_POST}}
	routes := []*pb.HttpRoute{
		named("any", nil),
		named("foo", nil, &httppb.HttpRouteMatch{Path: prefixPath("/foo")}),
		named("foo-bar", nil, &httppb.HttpRouteMatch{Path: prefixPath("/foo/bar/")}),
		named("exact", nil, &httppb.HttpRouteMatch{Path: exactPath("/foo/bar")}),
		named("regex", nil, &httppb.HttpRouteMatch{Path: regexPath("/r[0-9]+")}),
		named("post", nil, &httppb.HttpRouteMatch{Path: prefixPath("/foo"), Method: post}),
		named("header", nil, &httppb.HttpRouteMatch{Path: prefixPath("/foo"), Headers: []*httppb.HeaderMatch{
			{Name: "x-a", Value: &httppb.HeaderMatch_Exact{Exact: []byte("1")}},
		}}),
		named("query", nil, &httppb.HttpRouteMatch{Path: prefixPath("/foo"), QueryParams: []*httppb.QueryParamMatch{
			{Name: "q", Value: &httppb.QueryParamMatch_Regex{Regex: "a+"}},
		}}),
		named("host", exactHost("Web.Example.com")),
		named("wild", suffixHost("com", "example")),
	}
	p := compiled(t, detecting(routes))
	for _, tt := range []struct {
		r    Request
		want string
	}{
		{get("GET", "a", "/"), "any"},
		{get("GET", "a", "/foo"), "foo"},
		{get("GET", "a", "/foo/x"), "foo"},
		{get("GET", "a", "/foobar"), "any"}, // not a segment
		{get("GET", "a", "/foo/bar/x"), "foo-bar"},
		{get("GET", "a", "/foo/bar"), "exact"},
		{get("GET", "a", "/foo/bar?x"), "exact"},
		{get("GET", "a", "/r12"), "regex"},
		{get("GET", "a", "/r12/x"), "any"},
		{get("POST", "a", "/foo"), "post"},
		{get("POST", "a", "/foo", "X-A", "1"), "post"}, // the method weighs more than a header
		{get("GET", "a", "/foo", "X-A", "2", "X-A", "1"), "header"},
		{get("GET", "a", "/foo?q=aaa"), "query"},
		{get("GET", "a", "/foo?q=aab"), "foo"},
		{get("GET", "WEB.example.com:8080", "/foo"), "host"}, // the host weighs most
		{get("GET", "web.example.com.", "/"), "host"},
		{get("GET", "x.y.example.com", "/foo"), "wild"},
		{get("GET", "example.com", "/foo"), "foo"},
		{get("GET", "xexample.com", "/"), "any"},
		{get("GET", "[::1]:80", "/"), "any"},
	} {
		v := p.HTTP(plain(elsewhere), tt.r)
		if v.Route.Name != tt.want || v.Authz.Name != tt.want || !v.Allowed {
			t.Errorf("%s %s%s: %+v, want %s", tt.r.Method, tt.r.Authority, tt.r.Path, v, tt.want)
		}
	}
}

func TestRouteAuthorizationsExtendTheServers(t *testing.T) {
	r := named("friends", nil, &httppb.HttpRouteMatch{Path: prefixPath("/friends")})
	r.Authorizations = []*pb.Authz{authz("friends", ids([]string{web}))}
	p := compiled(t, detecting([]*pb.HttpRoute{r}, authz("ten", unauthenticated(), &pb.Network{Net: net4(10, 9, 0, 0, 16)})))
	for _, tt := range []struct {
		c    Client
		path string
		want bool
	}{
		{meshed(web), "/friends", true},
		{meshed("x.y"), "/friends", false},
		{plain(elsewhere), "/friends", false},
		{plain(itself), "/friends", true},
		{Client{Addr: elsewhere.Next()}, "/friends", false},
	} {
		if v := p.HTTP(tt.c, get("GET", "a", tt.path)); v.Allowed != tt.want {
			t.Errorf("%+v %s: %+v", tt.c, tt.path, v)
		}
	}
	if v := p.HTTP(meshed(web), get("GET", "a", "/other")); v.Allowed || !v.NoRoute {
		t.Errorf("a path without a route: %+v", v)
	}
}

func TestGRPCRoutes(t *testing.T) {
	rpc := func(name, service, method string) *pb.GrpcRoute {
		return &pb.GrpcRoute{
			Metadata: authz(name, nil).GetMetadata(), Authorizations: []*pb.Authz{authz(name, unauthenticated())},
			Rules: []*pb.GrpcRoute_Rule{{Matches: []*grpcpb.GrpcRouteMatch{{Rpc: &grpcpb.GrpcRpcMatch{Service: service, Method: method}}}}},
		}
	}
	s := detecting(nil)
	s.Protocol = &pb.ProxyProtocol{Kind: &pb.ProxyProtocol_Grpc_{Grpc: &pb.ProxyProtocol_Grpc{Routes: []*pb.GrpcRoute{
		rpc("service", "a.S", ""), rpc("method", "a.S", "M"), rpc("anywhere", "", "Ping"),
	}}}}
	p := compiled(t, s)
	for _, tt := range []struct{ method, path, want string }{
		{"POST", "/a.S/M", "method"},
		{"POST", "/a.S/N", "service"},
		{"POST", "/b.S/Ping", "anywhere"},
		{"POST", "/a.SS/M", ""},
		{"POST", "/x/y/Ping", ""},
		{"GET", "/a.S/M", ""},
	} {
		if v := p.HTTP(plain(elsewhere), get(tt.method, "a", tt.path)); v.Route.Name != tt.want || v.Allowed != (tt.want != "") {
			t.Errorf("%s %s: %+v, want %q", tt.method, tt.path, v, tt.want)
		}
	}
}

func TestFilters(t *testing.T) {
	r := named("r", nil)
	r.Rules[0].Filters = []*pb.HttpRoute_Filter{
		{Kind: &pb.HttpRoute_Filter_RequestHeaderModifier{RequestHeaderModifier: &httppb.RequestHeaderModifier{
			Add: &typepb.Headers{Headers: []*typepb.Headers_Header{{Name: "a", Value: []byte("1")}}}, Remove: []string{"b"},
		}}},
		{Kind: &pb.HttpRoute_Filter_Redirect{Redirect: &httppb.RequestRedirect{Host: "h", Port: 8080, Status: 302}}},
		{Kind: &pb.HttpRoute_Filter_FailureInjector{}},
		{},
		{Kind: &pb.HttpRoute_Filter_FailureInjector{FailureInjector: &httppb.HttpFailureInjector{Ratio: &httppb.Ratio{Numerator: 1, Denominator: 4}}}},
	}
	v := compiled(t, detecting([]*pb.HttpRoute{r})).HTTP(plain(elsewhere), get("GET", "a", "/"))
	f := v.Filters
	if len(f) != 5 || f[0].Request.Add[0] != (change.Header{Name: "a", Value: "1"}) || f[0].Request.Remove[0] != "b" || f[1].Redirect.Port != 8080 || f[2].Fail == "" || f[3].Fail == "" || f[2].Ratio != 1 || f[3].Ratio != 1 || f[4].Ratio != 0.25 {
		t.Errorf("filters %+v", f)
	}
}

// A change that HTTP cannot carry refuses everything: it may be what was to stop a request.
func TestChangesThatHTTPCannotCarry(t *testing.T) {
	set := func(name, value string) *httppb.RequestHeaderModifier {
		return &httppb.RequestHeaderModifier{Set: &typepb.Headers{Headers: []*typepb.Headers_Header{{Name: name, Value: []byte(value)}}}}
	}
	for _, tt := range []struct {
		name     string
		modifier *httppb.RequestHeaderModifier
		redirect *httppb.RequestRedirect
		ok       bool
	}{
		{"fine", set("X-A", "a b"), &httppb.RequestRedirect{Host: "y", Status: 308}, true},
		{"a name of two words", set("x a", "1"), nil, false},
		{"a name of HTTP/2's own", set(":path", "/"), nil, false},
		{"a value with a line's end", set("x", "a\r\ny: b"), nil, false},
		{"a removal without name", &httppb.RequestHeaderModifier{Remove: []string{""}}, nil, false},
		{"a host with a line's end", nil, &httppb.RequestRedirect{Host: "y\r\nz"}, false},
		{"a port that is none", nil, &httppb.RequestRedirect{Port: 65536}, false},
		{"a status that leads nowhere", nil, &httppb.RequestRedirect{Host: "y", Status: 200}, false},
	} {
		r := named("r", nil)
		if tt.modifier != nil {
			r.Rules[0].Filters = append(r.Rules[0].Filters, &pb.HttpRoute_Filter{Kind: &pb.HttpRoute_Filter_RequestHeaderModifier{RequestHeaderModifier: tt.modifier}})
		}
		if tt.redirect != nil {
			r.Rules[0].Filters = append(r.Rules[0].Filters, &pb.HttpRoute_Filter{Kind: &pb.HttpRoute_Filter_Redirect{Redirect: tt.redirect}})
		}
		p, err := Compile(detecting([]*pb.HttpRoute{r}), time.Second)
		if v := p.HTTP(plain(elsewhere), get("GET", "a", "/")); (err == nil) != tt.ok || v.Broken == tt.ok {
			t.Errorf("%s: %v, broken %v", tt.name, err, v.Broken)
		}
	}
}
