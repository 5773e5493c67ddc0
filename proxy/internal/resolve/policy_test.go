package resolve

import (
	"net/http"
	"net/netip"
	"testing"
	"time"

	destpb "github.com/linkerd/linkerd2-proxy-api/go/destination"
	grpcpb "github.com/linkerd/linkerd2-proxy-api/go/grpc_route"
	routepb "github.com/linkerd/linkerd2-proxy-api/go/http_route"
	metapb "github.com/linkerd/linkerd2-proxy-api/go/meta"
	outpb "github.com/linkerd/linkerd2-proxy-api/go/outbound"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/weftmesh/weft/proxy/internal/message"
	"github.com/weftmesh/weft/services/kit/pattern"
)

func meta(name string) *metapb.Metadata {
	return &metapb.Metadata{Kind: &metapb.Metadata_Resource{Resource: &metapb.Resource{Group: "core", Kind: "Service", Namespace: "shop", Name: name, Port: 80}}}
}

func toBalancer(name string) *outpb.Backend {
	return &outpb.Backend{Metadata: meta(name), Kind: &outpb.Backend_Balancer{Balancer: &outpb.Backend_BalanceP2C{
		Discovery: &outpb.Backend_EndpointDiscovery{Kind: &outpb.Backend_EndpointDiscovery_Dst{Dst: &outpb.Backend_EndpointDiscovery_DestinationGet{Path: name + ".shop:80"}}},
	}}}
}

func first(b *outpb.Backend) *outpb.HttpRoute_Distribution {
	return &outpb.HttpRoute_Distribution{Kind: &outpb.HttpRoute_Distribution_FirstAvailable_{FirstAvailable: &outpb.HttpRoute_Distribution_FirstAvailable{
		Backends: []*outpb.HttpRoute_RouteBackend{{Backend: b}},
	}}}
}

func detect() *outpb.OutboundPolicy {
	rule := &outpb.HttpRoute_Rule{Backends: first(toBalancer("web"))}
	routes := []*outpb.HttpRoute{{Metadata: meta("route"), Rules: []*outpb.HttpRoute_Rule{rule}}}
	return &outpb.OutboundPolicy{Metadata: meta("web"), Protocol: &outpb.ProxyProtocol{Kind: &outpb.ProxyProtocol_Detect_{Detect: &outpb.ProxyProtocol_Detect{
		Opaque: &outpb.ProxyProtocol_Opaque{Routes: []*outpb.OpaqueRoute{{Metadata: meta("opaque"), Rules: []*outpb.OpaqueRoute_Rule{{
			Backends: &outpb.OpaqueRoute_Distribution{Kind: &outpb.OpaqueRoute_Distribution_FirstAvailable_{FirstAvailable: &outpb.OpaqueRoute_Distribution_FirstAvailable{
				Backends: []*outpb.OpaqueRoute_RouteBackend{{Backend: toBalancer("web")}},
			}}},
		}}}}},
		Http1: &outpb.ProxyProtocol_Http1{Routes: routes}, Http2: &outpb.ProxyProtocol_Http2{Routes: routes},
	}}}}
}

func TestPolicyOf(t *testing.T) {
	p := policyOf(detect())
	if p.Protocol != Detect || p.Parent.Name != "web" || p.Opaque.Backends[0].Path != "web.shop:80" {
		t.Errorf("got %+v", p)
	}
	if b := p.HTTP1.Routes[0].Rules[0].Backends; b.Kind != SplitFirst || b.Backends[0].Path != "web.shop:80" || b.Backends[0].Load != DefaultLoad {
		t.Errorf("got %+v", b)
	}
}

// What cannot be read never becomes something looser.
func TestUnreadablePoliciesAreInvalid(t *testing.T) {
	rule := func(p *outpb.OutboundPolicy) *outpb.HttpRoute_Rule {
		return p.GetProtocol().GetDetect().GetHttp1().GetRoutes()[0].GetRules()[0]
	}
	for name, spoil := range map[string]func(*outpb.OutboundPolicy){
		"no metadata":                func(p *outpb.OutboundPolicy) { p.Metadata = nil },
		"a resource without a name":  func(p *outpb.OutboundPolicy) { p.Metadata.GetResource().Name = "" },
		"a resource without a group": func(p *outpb.OutboundPolicy) { p.Metadata.GetResource().Group = "" },
		"no protocol":                func(p *outpb.OutboundPolicy) { p.Protocol = nil },
		"detect without HTTP/2":      func(p *outpb.OutboundPolicy) { p.GetProtocol().GetDetect().Http2 = nil },
		"an unknown filter":          func(p *outpb.OutboundPolicy) { rule(p).Filters = []*outpb.HttpRoute_Filter{{}} },
		"an empty list of backends":  func(p *outpb.OutboundPolicy) { rule(p).GetBackends().GetFirstAvailable().Backends = nil },
		"no distribution":            func(p *outpb.OutboundPolicy) { rule(p).Backends = nil },
		"a backend without metadata": func(p *outpb.OutboundPolicy) {
			rule(p).GetBackends().GetFirstAvailable().Backends[0].Backend.Metadata = nil
		},
		"a retry without conditions": func(p *outpb.OutboundPolicy) { rule(p).Retry = &outpb.HttpRoute_Retry{MaxRetries: 1} },
		"a status range that is none": func(p *outpb.OutboundPolicy) {
			rule(p).Retry = &outpb.HttpRoute_Retry{Conditions: &outpb.HttpRoute_Retry_Conditions{StatusRanges: []*outpb.HttpRoute_Retry_Conditions_StatusRange{{Start: 500, End: 400}}}}
		},
		"a regular expression that is none": func(p *outpb.OutboundPolicy) {
			rule(p).Matches = []*routepb.HttpRouteMatch{{Path: &routepb.PathMatch{Kind: &routepb.PathMatch_Regex{Regex: "("}}}}
		},
		"an accrual without backoff": func(p *outpb.OutboundPolicy) {
			p.GetProtocol().GetDetect().GetHttp1().FailureAccrual = &outpb.FailureAccrual{Kind: &outpb.FailureAccrual_ConsecutiveFailures_{ConsecutiveFailures: &outpb.FailureAccrual_ConsecutiveFailures{MaxFailures: 7}}}
		},
		"two opaque rules": func(p *outpb.OutboundPolicy) {
			r := p.GetProtocol().GetDetect().GetOpaque().GetRoutes()[0]
			r.Rules = append(r.Rules, r.Rules[0])
		},
	} {
		p := proto.Clone(detect()).(*outpb.OutboundPolicy)
		spoil(p)
		if got := policyOf(p); got.Protocol != Invalid || got.Reason == "" {
			t.Errorf("%s: %v %q", name, got.Protocol, got.Reason)
		}
	}
}

func TestRuleOf(t *testing.T) {
	r, err := httpRule(&outpb.HttpRoute_Rule{
		Backends: &outpb.HttpRoute_Distribution{Kind: &outpb.HttpRoute_Distribution_RandomAvailable_{RandomAvailable: &outpb.HttpRoute_Distribution_RandomAvailable{
			Backends: []*outpb.HttpRoute_WeightedRouteBackend{
				{Weight: 9, Backend: &outpb.HttpRoute_RouteBackend{Backend: toBalancer("a")}},
				{Weight: 1, Backend: &outpb.HttpRoute_RouteBackend{Backend: toBalancer("b"), Filters: []*outpb.HttpRoute_Filter{{Kind: &outpb.HttpRoute_Filter_FailureInjector{
					FailureInjector: &routepb.HttpFailureInjector{Status: 503, Message: "no", Ratio: &routepb.Ratio{Numerator: 1, Denominator: 4}},
				}}}}},
			},
		}}},
		RequestTimeout: durationpb.New(time.Second), //nolint:staticcheck // what older controllers send
		Timeouts:       &routepb.Timeouts{Response: durationpb.New(2 * time.Second)},
		Retry: &outpb.HttpRoute_Retry{MaxRetries: 100000, MaxRequestBytes: 10, Conditions: &outpb.HttpRoute_Retry_Conditions{
			StatusRanges: []*outpb.HttpRoute_Retry_Conditions_StatusRange{{Start: 500, End: 599}},
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if b := r.Backends; b.Kind != SplitRandom || b.Backends[0].Weight != 9 || b.Backends[1].Filters[0].Fail.Ratio != 0.25 {
		t.Errorf("backends %+v", b)
	}
	if r.Timeouts != (Timeouts{Request: time.Second, Response: 2 * time.Second}) {
		t.Errorf("timeouts %+v", r.Timeouts)
	}
	if r.Retry.Limit != 65535 || r.Retry.Statuses[0] != (StatusRange{500, 599}) {
		t.Errorf("retry %+v", r.Retry)
	}
}

func TestDecide(t *testing.T) {
	to := Target{Addr: netip.MustParseAddrPort("10.0.0.9:80")}
	named := Target{Authority: "web.shop:80"}
	pod := &Endpoint{Addr: netip.MustParseAddrPort("10.0.0.1:8080"), Identity: "web"}
	policy := policyOf(detect())
	backend := func(p *Policy) Backend { return p.HTTP1.Routes[0].Rules[0].Backends.Backends[0] }

	if p := decide(to, nil, nil); p.Parent.Name != "fallback" || backend(p).Forward.Addr != to.Addr || backend(p).Forward.Identity != "" {
		t.Errorf("nobody knows it: %+v", p)
	}
	if p := decide(named, nil, nil); p != nil {
		t.Errorf("nobody knows the name: %+v", p)
	}
	if p := decide(to, &Profile{Endpoint: pod}, nil); p.Parent.Name != "endpoint" || backend(p).Forward.Identity != "web" {
		t.Errorf("a profile of one endpoint: %+v", p)
	}
	if p := decide(to, &Profile{Endpoint: pod, Opaque: true}, nil); p.Protocol != Opaque {
		t.Errorf("an opaque one: %v", p.Protocol)
	}
	if p := decide(to, &Profile{Endpoint: pod}, policy); p.Parent.Name != "web" || backend(p).Path == "" {
		t.Errorf("a policy counts for more: %+v", p)
	}
	if p := decide(named, &Profile{Name: "web.shop", Opaque: true}, policy); p.Protocol != Opaque || policy.Protocol != Detect {
		t.Errorf("an opaque profile: %v", p.Protocol)
	}
	overrides := []Backend{{Path: "other:80", Weight: 1}}
	if p := decide(named, &Profile{Name: "web.shop", Overrides: overrides}, policy); backend(p).Path != "other:80" || p.Opaque.Backends[0].Path != "other:80" {
		t.Errorf("overrides: %+v", p)
	}
	if p := decide(named, &Profile{Overrides: overrides}, policy); backend(p).Path == "other:80" {
		t.Error("overrides of a profile without a name count")
	}
	invalid := policyOf(&outpb.OutboundPolicy{})
	if p := decide(named, &Profile{Opaque: true}, invalid); p.Protocol != Invalid {
		t.Errorf("an opaque profile hides that the policy cannot be read: %v", p.Protocol)
	}
}

func TestProfileOf(t *testing.T) {
	p := profileOf(&destpb.DestinationProfile{
		FullyQualifiedName: "web.shop", DstOverrides: []*destpb.WeightedDst{{Authority: "a:80", Weight: 5000}, {Authority: "b:80"}, {Weight: 1}},
	})
	if len(p.Overrides) != 1 || p.Overrides[0].Path != "a:80" || p.Endpoint != nil {
		t.Errorf("got %+v", p)
	}
}

func TestSelect(t *testing.T) {
	exact := func(p string) Match { return Match{PathKind: PathExact, Path: p} }
	prefix := func(p string) Match { return Match{PathKind: PathPrefix, Path: p} }
	header := Match{Headers: []Value{{Name: "X-A", Exact: "1"}}}
	query := Match{Query: []Value{{Name: "q", Exact: "1"}}}
	post := Match{Method: http.MethodPost}
	digits, _ := pattern.Whole("/v[0-9]+")
	route := func(name string, hosts []HostMatch, matches ...Match) Route {
		return Route{Ref: fallback(name), Hosts: hosts, Rules: []Rule{{Matches: matches}}}
	}
	host := func(h string) []HostMatch { return []HostMatch{{Exact: h}} }
	suffix := func(h string) []HostMatch { return []HostMatch{{Suffix: h}} }
	for _, tt := range []struct {
		name   string
		routes []Route
		method string
		host   string
		uri    string
		want   string // "" is none
	}{
		{"a rule without matches takes all", []Route{route("all", nil)}, "GET", "x", "/", "all"},
		{"none", nil, "GET", "x", "/", ""},
		{"exact over a longer prefix's length", []Route{route("prefix", nil, prefix("/a")), route("exact", nil, exact("/a"))}, "GET", "x", "/a", "exact"},
		{"the longer prefix", []Route{route("short", nil, prefix("/a")), route("long", nil, prefix("/a/b"))}, "GET", "x", "/a/b/c", "long"},
		{"a prefix ends at a segment", []Route{route("foo", nil, prefix("/foo"))}, "GET", "x", "/foobar", ""},
		{"or at the end", []Route{route("foo", nil, prefix("/foo/"))}, "GET", "x", "/foo", "foo"},
		{"the root is everyone's prefix", []Route{route("root", nil, prefix("/"))}, "GET", "x", "/any", "root"},
		{"a regex is whole", []Route{route("v", nil, Match{PathKind: PathRegex, Regex: digits})}, "GET", "x", "/v1/more", ""},
		{"and matches", []Route{route("v", nil, Match{PathKind: PathRegex, Regex: digits})}, "GET", "x", "/v12", "v"},
		{"a method", []Route{route("any", nil), route("post", nil, post)}, "POST", "x", "/", "post"},
		{"that is not asked", []Route{route("post", nil, post)}, "GET", "x", "/", ""},
		{"a header", []Route{route("any", nil), route("header", nil, header)}, "GET", "x", "/", "header"},
		{"method before header", []Route{route("header", nil, header), route("post", nil, post)}, "POST", "x", "/", "post"},
		{"header before query", []Route{route("query", nil, query), route("header", nil, header)}, "GET", "x", "/?q=1", "header"},
		{"a query", []Route{route("any", nil), route("query", nil, query)}, "GET", "x", "/?q=1", "query"},
		{"a tie goes to the first", []Route{route("first", nil, prefix("/a")), route("second", nil, prefix("/a"))}, "GET", "x", "/a", "first"},
		{"the host first of all", []Route{route("path", nil, exact("/a")), route("host", host("x"), prefix("/"))}, "GET", "X.", "/a", "host"},
		{"an exact host over a suffix", []Route{route("suffix", suffix(".a.b")), route("exact", host("x.a.b"))}, "GET", "x.a.b", "/", "exact"},
		{"the longer suffix", []Route{route("short", suffix(".b")), route("long", suffix(".a.b"))}, "GET", "x.a.b", "/", "long"},
		{"a suffix needs a label before it", []Route{route("suffix", suffix(".a.b"))}, "GET", "a.b", "/", ""},
		{"another host", []Route{route("host", host("y"))}, "GET", "x", "/", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := asked(tt.method, tt.uri)
			r.Fields.Set("X-A", "1")
			got, _ := Select(tt.routes, tt.host, r)
			switch {
			case got == nil && tt.want != "":
				t.Errorf("none, want %s", tt.want)
			case got != nil && got.Ref.Name != tt.want:
				t.Errorf("%s, want %q", got.Ref.Name, tt.want)
			}
		})
	}
}

func TestGRPCMatches(t *testing.T) {
	rule := func(service, method string) *outpb.GrpcRoute_Rule {
		r := &outpb.GrpcRoute_Rule{Backends: &outpb.GrpcRoute_Distribution{Kind: &outpb.GrpcRoute_Distribution_Empty_{}}}
		if service+method != "" {
			r.Matches = []*grpcpb.GrpcRouteMatch{{Rpc: &grpcpb.GrpcRpcMatch{Service: service, Method: method}}}
		}
		return r
	}
	routes := []*outpb.GrpcRoute{
		{Metadata: meta("any"), Rules: []*outpb.GrpcRoute_Rule{rule("", "")}},
		{Metadata: meta("method"), Rules: []*outpb.GrpcRoute_Rule{rule("", "Get")}},
		{Metadata: meta("service"), Rules: []*outpb.GrpcRoute_Rule{rule("a.B", "")}},
		{Metadata: meta("both"), Rules: []*outpb.GrpcRoute_Rule{rule("a.B", "Get")}},
	}
	h, err := grpcOf(routes, nil)
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{"/a.B/Get": "both", "/a.B/Put": "service", "/a.C/Get": "method", "/a.C/Put": "any"} {
		if got, _ := Select(h.Routes, "x", asked(http.MethodPost, path)); got == nil || got.Ref.Name != want {
			t.Errorf("%s: %v, want %s", path, got, want)
		}
	}
	if got, _ := Select(h.Routes, "x", asked(http.MethodGet, "/a.B/Get")); got != nil {
		t.Errorf("a GET is taken for gRPC by %v", got.Ref)
	}
}

func asked(method, target string) *message.Request {
	return &message.Request{Method: method, Target: target}
}

func FuzzPolicy(f *testing.F) {
	b, _ := proto.Marshal(detect())
	f.Add(b)
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		var p outpb.OutboundPolicy
		if proto.Unmarshal(b, &p) != nil {
			return
		}
		got := policyOf(&p)
		Select(got.HTTP1.Routes, "x", asked("GET", "/"))
		Select(got.HTTP2.Routes, "x", asked("POST", "/a/b"))
	})
}
