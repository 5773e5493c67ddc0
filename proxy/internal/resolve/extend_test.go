package resolve

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	destpb "github.com/linkerd/linkerd2-proxy-api/go/destination"
	routepb "github.com/linkerd/linkerd2-proxy-api/go/http_route"
	typespb "github.com/linkerd/linkerd2-proxy-api/go/http_types"
	outpb "github.com/linkerd/linkerd2-proxy-api/go/outbound"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	routesv1 "github.com/weftmesh/weft/proto/gen/weft/routes/v1"
)

func encoded(t testing.TB, m proto.Message) []byte {
	t.Helper()
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestExtended(t *testing.T) {
	mirror := encoded(t, detect().GetProtocol().GetDetect().GetHttp1().GetRoutes()[0].GetRules()[0].GetBackends().GetFirstAvailable().GetBackends()[0].GetBackend())
	prefix := "/new"
	p := extended(&routesv1.WatchResponse{Policy: encoded(t, detect()), Extensions: []*routesv1.RuleExtension{{
		Filters: &routesv1.Filters{
			Rewrite:         &routesv1.Rewrite{Host: "inner", Path: &routesv1.Rewrite_Prefix{Prefix: prefix}},
			ResponseHeaders: &routesv1.HeaderModifier{Remove: []string{"x"}},
			Mirrors: []*routesv1.Mirror{
				{Backend: mirror, Numerator: 1, Denominator: 4},
				{Backend: []byte("no backend"), Numerator: 1, Denominator: 1},
				{Backend: mirror, Numerator: 1}, // of nothing: left out
			},
		},
		Backends:           []*routesv1.BackendExtension{{Filters: &routesv1.Filters{Rewrite: &routesv1.Rewrite{Path: &routesv1.Rewrite_Full{Full: "/all"}}}}},
		SessionPersistence: &routesv1.SessionPersistence{Name: "sid", Kind: routesv1.SessionPersistence_KIND_HEADER, IdleTimeout: durationpb.New(time.Minute)},
		AttemptTimeout:     durationpb.New(time.Second),
	}}})
	if p.Protocol != Detect {
		t.Fatalf("%v: %s", p.Protocol, p.Reason)
	}
	for name, h := range map[string]HTTP{"http1": p.HTTP1, "http2": p.HTTP2} {
		rule := h.Routes[0].Rules[0]
		var got []string
		for _, f := range rule.Filters {
			switch {
			case f.Rewrite != nil && f.Rewrite.Host == "inner" && *f.Rewrite.Prefix == prefix:
				got = append(got, "rewrite")
			case f.Response != nil && len(f.Response.Remove) == 1:
				got = append(got, "response")
			case f.Mirror != nil && f.Mirror.Ratio == 0.25 && f.Mirror.To.Path != "":
				got = append(got, "mirror")
			}
		}
		if diff := cmp.Diff([]string{"response", "rewrite", "mirror"}, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		if b := rule.Backends.Backends[0]; len(b.Filters) != 1 || b.Filters[0].Rewrite.Full != "/all" {
			t.Errorf("%s: the backend has %+v", name, b.Filters)
		}
		want := &Session{Name: "sid", Header: true, Idle: time.Minute}
		if diff := cmp.Diff(want, rule.Session); diff != "" || rule.Timeouts.Attempt != time.Second {
			t.Errorf("%s: %s, %v", name, diff, rule.Timeouts)
		}
	}
}

func TestExtendedFailsClosed(t *testing.T) {
	refuses := func(p *Policy) bool {
		f := p.HTTP1.Routes[0].Rules[0].Filters
		return len(f) > 0 && f[len(f)-1].Fail != nil && f[len(f)-1].Fail.Ratio == 1 && f[len(f)-1].Fail.Status == 500
	}
	strange := &routesv1.Filters{Rewrite: &routesv1.Rewrite{}}
	strange.GetRewrite().ProtoReflect().SetUnknown([]byte{0xf8, 0x07, 0x01})
	for name, e := range map[string]*routesv1.RuleExtension{
		"a field within a filter": {Filters: strange},
		"a session of no kind":    {SessionPersistence: &routesv1.SessionPersistence{Name: "x"}},
		"a session of a new kind": {SessionPersistence: &routesv1.SessionPersistence{Name: "x", Kind: 7}},
		"a session without name":  {SessionPersistence: &routesv1.SessionPersistence{Kind: routesv1.SessionPersistence_KIND_COOKIE}},
		"a backend that is none":  {Backends: []*routesv1.BackendExtension{{Backend: 9}}},
	} {
		if p := extended(&routesv1.WatchResponse{Policy: encoded(t, detect()), Extensions: []*routesv1.RuleExtension{e}}); !refuses(p) {
			t.Errorf("%s is passed over: %+v", name, p)
		}
	}
	for name, m := range map[string]*routesv1.WatchResponse{
		"no policy":               {},
		"bytes":                   {Policy: []byte("\xff\xff")},
		"a route that is none":    {Policy: encoded(t, detect()), Extensions: []*routesv1.RuleExtension{{Route: 1 << 31}}},
		"a rule that is none":     {Policy: encoded(t, detect()), Extensions: []*routesv1.RuleExtension{{Rule: 5}}},
		"a policy of no protocol": {Policy: encoded(t, &outpb.OutboundPolicy{Metadata: meta("x")})},
	} {
		if p := extended(m); p.Protocol != Invalid {
			t.Errorf("%s: %v", name, p.Protocol)
		}
	}
}

func FuzzExtended(f *testing.F) {
	f.Add(encoded(f, &routesv1.WatchResponse{Policy: encoded(f, detect()), Extensions: []*routesv1.RuleExtension{{Filters: &routesv1.Filters{Rewrite: &routesv1.Rewrite{Host: "x"}}}}}))
	f.Fuzz(func(t *testing.T, b []byte) {
		m := &routesv1.WatchResponse{}
		if proto.Unmarshal(b, m) != nil {
			return
		}
		if p := extended(m); p.Protocol == Invalid && p.Reason == "" {
			t.Error("invalid without a reason")
		}
	})
}

func TestSelectTLS(t *testing.T) {
	routes := []TLSRoute{
		{SNIs: []HostMatch{{Suffix: ".b.c"}}}, {SNIs: []HostMatch{{Suffix: ".a.b.c"}}}, {SNIs: []HostMatch{{Exact: "x.b.c"}, {Exact: "y.d"}}}, {}, {},
	}
	for sni, want := range map[string]int{"z.b.c": 0, "z.a.b.c": 1, "X.B.c": 2, "y.d": 2, "b.c": 3, "other": 3} {
		if got := SelectTLS(routes, sni); got != want {
			t.Errorf("%s: %d, want %d", sni, got, want)
		}
	}
	if got := SelectTLS(routes[:3], "other"); got != -1 {
		t.Errorf("nothing takes it, but %d", got)
	}
}

func TestConditions(t *testing.T) {
	path := func(expr string) *destpb.RequestMatch {
		return &destpb.RequestMatch{Match: &destpb.RequestMatch_Path{Path: &destpb.PathMatch{Regex: expr}}}
	}
	get := &destpb.RequestMatch{Match: &destpb.RequestMatch_Method{Method: &typespb.HttpMethod{Type: &typespb.HttpMethod_Registered_{Registered: typespb.HttpMethod_GET}}}}
	seq := func(all ...*destpb.RequestMatch) *destpb.RequestMatch_Seq {
		return &destpb.RequestMatch_Seq{Matches: all}
	}
	for _, tt := range []struct {
		name string
		m    *destpb.RequestMatch
		want string // of GET /a, POST /a, GET /ab: which are taken
	}{
		{"a path, whole", path("/a"), "yyn"},
		{"anchored already", path("^/a$"), "yyn"},
		{"a method", get, "yny"},
		{"all", &destpb.RequestMatch{Match: &destpb.RequestMatch_All{All: seq(get, path("/a"))}}, "ynn"},
		{"all of nothing", &destpb.RequestMatch{Match: &destpb.RequestMatch_All{All: seq()}}, "yyy"},
		{"any", &destpb.RequestMatch{Match: &destpb.RequestMatch_Any{Any: seq(get, path("/a"))}}, "yyy"},
		{"any of nothing", &destpb.RequestMatch{Match: &destpb.RequestMatch_Any{Any: seq()}}, "nnn"},
		{"not", &destpb.RequestMatch{Match: &destpb.RequestMatch_Not{Not: get}}, "nyn"},
		{"a part that cannot be read is left out", &destpb.RequestMatch{Match: &destpb.RequestMatch_All{All: seq(get, path("("))}}, "yny"},
		{"no condition", nil, ""},
		{"an empty one", &destpb.RequestMatch{}, ""},
		{"a bad expression", path("("), ""},
	} {
		c, ok := conditionOf(tt.m, maxDepth)
		got := ""
		if ok {
			for _, r := range []struct{ method, target string }{{"GET", "/a"}, {"POST", "/a?q"}, {"GET", "/ab"}} {
				if c.Takes(asked(r.method, r.target)) {
					got += "y"
				} else {
					got += "n"
				}
			}
		}
		if got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
	deep := get
	for range 100 {
		deep = &destpb.RequestMatch{Match: &destpb.RequestMatch_Not{Not: deep}}
	}
	if _, ok := conditionOf(deep, maxDepth); ok {
		t.Error("a condition as deep as anybody likes")
	}
}

// A match that this proxy does not know would take too much if it were left out.
func TestUnknownMatchesAreInvalid(t *testing.T) {
	for name, change := range map[string]func(*outpb.HttpRoute){
		"a host": func(r *outpb.HttpRoute) { r.Hosts = []*routepb.HostMatch{{}} },
		"a path": func(r *outpb.HttpRoute) { r.Rules[0].Matches = []*routepb.HttpRouteMatch{{Path: &routepb.PathMatch{}}} },
		"a header": func(r *outpb.HttpRoute) {
			r.Rules[0].Matches = []*routepb.HttpRouteMatch{{Headers: []*routepb.HeaderMatch{{Name: "x"}}}}
		},
		"a query": func(r *outpb.HttpRoute) {
			r.Rules[0].Matches = []*routepb.HttpRouteMatch{{QueryParams: []*routepb.QueryParamMatch{{Name: "x"}}}}
		},
	} {
		p := detect()
		change(p.GetProtocol().GetDetect().GetHttp1().GetRoutes()[0])
		if got := policyOf(p); got.Protocol != Invalid {
			t.Errorf("%s: %v", name, got.Protocol)
		}
	}
}
