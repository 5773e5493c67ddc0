package outbound

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	routepb "github.com/linkerd/linkerd2-proxy-api/go/http_route"
	outpb "github.com/linkerd/linkerd2-proxy-api/go/outbound"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	routesv1 "github.com/weftmesh/weft/proto/gen/weft/routes/v1"
)

// routesDesc is Weft's service for routes as services/policy describes it. While
// the controls do not know it, it answers as a server without it does.
func routesDesc(c *controls) *grpc.ServiceDesc {
	return &grpc.ServiceDesc{
		ServiceName: "weft.routes.v1.RoutesService", HandlerType: (*any)(nil),
		Streams: []grpc.StreamDesc{{StreamName: "Watch", ServerStreams: true, Handler: func(_ any, s grpc.ServerStream) error {
			q := &routesv1.WatchRequest{}
			if err := s.RecvMsg(q); err != nil {
				return err
			}
			c.mu.Lock()
			c.opened["routes"]++
			knows := c.weft
			c.mu.Unlock()
			if !knows {
				return status.Error(codes.Unimplemented, "unknown service weft.routes.v1.RoutesService")
			}
			key := q.GetAuthority()
			if a := q.GetAddress(); a != nil {
				ip, _ := netip.AddrFromSlice(a.GetIp())
				key = netip.AddrPortFrom(ip, uint16(a.GetPort())).String()
			}
			return follow(s.Context(), c, "routes "+key, func() (*routesv1.WatchResponse, bool) {
				p, ok := c.policies[key]
				encoded, _ := proto.Marshal(p)
				return &routesv1.WatchResponse{Policy: encoded, Extensions: c.extra[key]}, ok
			}, func(m *routesv1.WatchResponse) error { return s.SendMsg(m) })
		}}},
	}
}

// extend makes the control plane Weft's, which says these of the service's rules.
func (r *rig) extend(p *outpb.OutboundPolicy, extra ...*routesv1.RuleExtension) {
	r.controls.set(func() {
		r.controls.weft = true
		r.controls.policies[web], r.controls.extra[web] = p, extra
	})
}

// prefixed is the default policy, for requests below a prefix.
func prefixed(prefix string) *outpb.OutboundPolicy {
	b := balancerOf(web)
	rule := httpRule(b)
	rule.Matches = []*routepb.HttpRouteMatch{{Path: &routepb.PathMatch{Kind: &routepb.PathMatch_Prefix{Prefix: prefix}}}}
	return detectPolicy(b, rule, nil)
}

func TestWeftRoutesAreAskedFirst(t *testing.T) {
	r := start(t)
	app := serveHTTP(t, echo("a"))
	r.controls.service(web, plain(app.addr))
	r.extend(servicePolicy(web))
	if res, _ := get(t, r.client(), base+"/"); res.StatusCode != 200 {
		t.Fatalf("got %d", res.StatusCode)
	}
	if weft, linkerd := r.controls.streams("routes "+web), r.controls.streams("policy "+web); weft != 1 || linkerd != 0 {
		t.Errorf("Weft's service was asked %d times, Linkerd's %d; want 1, 0", weft, linkerd)
	}
}

// A control plane that does not know Weft's service is asked once for it, however
// many targets there are; one that stands where it stood is asked again.
func TestControlPlaneWithoutWeftRoutesIsAskedOnce(t *testing.T) {
	r := start(t)
	app := serveHTTP(t, echo("a"))
	names := []string{web, "b.shop.svc.cluster.local:80", "c.shop.svc.cluster.local:80", "d.shop.svc.cluster.local:80"}
	for _, name := range names {
		r.controls.service(name, plain(app.addr))
	}
	for _, name := range names {
		if res, _ := get(t, r.client(), "http://"+name+"/"); res.StatusCode != 200 {
			t.Fatalf("%s: %d", name, res.StatusCode)
		}
	}
	r.controls.cutStreams()
	eventually(t, "the policy is asked for again", func() bool { return r.controls.streams("policy "+web) > 1 })
	if got := r.controls.streams("routes"); got != 1 {
		t.Errorf("Weft's service was asked %d times, want once", got)
	}
}

func TestRewriteOfARoute(t *testing.T) {
	r := start(t)
	app := serveHTTP(t, echo("a"))
	r.controls.service(web, plain(app.addr))
	r.extend(servicePolicy(web), &routesv1.RuleExtension{Filters: &routesv1.Filters{Rewrite: &routesv1.Rewrite{Path: &routesv1.Rewrite_Prefix{Prefix: "/new"}}}})
	if res, _ := get(t, r.client(), base+"/old"); res.Header.Get("X-Uri") != "/new/old" {
		t.Errorf("a rule that takes everything: %d, %q", res.StatusCode, res.Header.Get("X-Uri"))
	}
	for _, tt := range []struct {
		name            string
		rewrite         *routesv1.Rewrite
		prefix, ask     string
		status          int
		wantURI, wantAt string
	}{
		{"a host", &routesv1.Rewrite{Host: "inner.example"}, "/", "/x?q=1", 200, "/x?q=1", "inner.example"},
		{"a path", &routesv1.Rewrite{Path: &routesv1.Rewrite_Full{Full: "/all"}}, "/", "/x/y?q=1", 200, "/all?q=1", "web.shop.svc.cluster.local"},
		{"a prefix", &routesv1.Rewrite{Path: &routesv1.Rewrite_Prefix{Prefix: "/new"}}, "/old", "/old/x%2Fy?q", 200, "/new/x%2Fy?q", "web.shop.svc.cluster.local"},
		{"a prefix that is all", &routesv1.Rewrite{Path: &routesv1.Rewrite_Prefix{Prefix: "/"}}, "/old", "/old", 200, "/", "web.shop.svc.cluster.local"},
	} {
		r.extend(prefixed(tt.prefix), &routesv1.RuleExtension{Filters: &routesv1.Filters{Rewrite: tt.rewrite}})
		eventually(t, tt.name, func() bool {
			res, _ := get(t, r.client(), base+tt.ask)
			return res.StatusCode == tt.status && res.Header.Get("X-Uri") == tt.wantURI && res.Header.Get("X-Host") == tt.wantAt
		})
	}
	// A rule that matches by an exact path has no prefix to replace.
	exact := prefixed("")
	exact.GetProtocol().GetDetect().GetHttp1().GetRoutes()[0].GetRules()[0].Matches[0].Path.Kind = &routepb.PathMatch_Exact{Exact: "/old"}
	r.extend(exact, &routesv1.RuleExtension{Filters: &routesv1.Filters{Rewrite: &routesv1.Rewrite{Path: &routesv1.Rewrite_Prefix{Prefix: "/new"}}}})
	eventually(t, "there is no prefix", func() bool { res, _ := get(t, r.client(), base+"/old"); return res.StatusCode == 500 })
}

func TestMirrorGetsACopy(t *testing.T) {
	const shadow = "shadow.shop.svc.cluster.local:80"
	r := start(t)
	app := serveHTTP(t, echo("a"))
	type seen struct{ uri, host, body, header string }
	copies := make(chan seen, 1000)
	other := serveHTTP(t, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, _ := io.ReadAll(req.Body)
		copies <- seen{req.RequestURI, req.Host, string(body), req.Header.Get("X-A")}
		w.WriteHeader(500)
	}))
	r.controls.service(web, plain(app.addr))
	r.controls.service(shadow, plain(other.addr))
	encoded, _ := proto.Marshal(balancerOf(shadow))
	mirrored := func(n uint32) *routesv1.RuleExtension {
		return &routesv1.RuleExtension{Filters: &routesv1.Filters{Mirrors: []*routesv1.Mirror{{Backend: encoded, Numerator: n, Denominator: 100}}}}
	}
	r.extend(servicePolicy(web), mirrored(100))
	large := strings.Repeat("x", 100_000)
	for _, body := range []string{"", "hello", large} {
		req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, base+"/p?q", strings.NewReader(body))
		req.Header.Set("X-A", "b")
		res, got := do(t, r.client(), req)
		if res.StatusCode != 200 || got != "a "+body {
			t.Fatalf("got %d, %d bytes", res.StatusCode, len(got))
		}
		if got := <-copies; got != (seen{"/p?q", "web.shop.svc.cluster.local", body, "b"}) {
			t.Errorf("the copy of %d bytes was %s %s %d bytes %q", len(body), got.uri, got.host, len(got.body), got.header)
		}
	}
	// A share of them: with 400 requests and 25 in 100, 40 to 170 is beyond doubt.
	r.extend(servicePolicy(web), mirrored(25))
	c := r.client()
	eventually(t, "the share is another", func() bool {
		before := len(copies)
		for range 8 {
			get(t, c, base+"/")
		}
		eventually(t, "copies are done", func() bool { return r.out.copying.Load() == 0 })
		return len(copies) < before+8
	})
	eventually(t, "copies are done", func() bool { return r.out.copying.Load() == 0 })
	for len(copies) > 0 {
		<-copies
	}
	for range 400 {
		get(t, c, base+"/")
	}
	eventually(t, "copies are done", func() bool { return r.out.copying.Load() == 0 })
	if n := len(copies); n < 40 || n > 170 {
		t.Errorf("%d copies of 400 requests at 25 %%", n)
	}
}

// A mirror that does not answer, or is not there, does not hold a request back.
func TestMirrorHoldsNothingBack(t *testing.T) {
	const shadow = "shadow.shop.svc.cluster.local:80"
	r := start(t)
	app := serveHTTP(t, echo("a"))
	stuck := make(chan struct{})
	other := serveHTTP(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-stuck }))
	t.Cleanup(func() { close(stuck) })
	r.controls.service(web, plain(app.addr))
	r.controls.service(shadow, plain(other.addr))
	encoded, _ := proto.Marshal(balancerOf(shadow))
	r.extend(servicePolicy(web), &routesv1.RuleExtension{Filters: &routesv1.Filters{Mirrors: []*routesv1.Mirror{
		{Backend: encoded, Numerator: 1, Denominator: 1},
		{Backend: []byte("no backend"), Numerator: 1, Denominator: 1},
	}}})
	body := bytes.Repeat([]byte("y"), 3<<20) // more than a copy may be behind
	for range 3 {
		req, _ := http.NewRequestWithContext(t.Context(), http.MethodPut, base+"/", bytes.NewReader(body))
		if res, got := do(t, r.client(), req); res.StatusCode != 200 || len(got) != len(body)+2 {
			t.Fatalf("got %d, %d bytes", res.StatusCode, len(got))
		}
	}
}

func TestSessionStaysAtItsEndpoint(t *testing.T) {
	r := start(t)
	a, b, c := serveHTTP(t, echo("a")), serveHTTP(t, echo("b")), serveHTTP(t, echo("c"))
	r.controls.service(web, plain(a.addr), plain(b.addr), plain(c.addr))
	for _, kind := range []routesv1.SessionPersistence_Kind{routesv1.SessionPersistence_KIND_COOKIE, routesv1.SessionPersistence_KIND_HEADER} {
		r.controls.service(web, plain(a.addr), plain(b.addr), plain(c.addr))
		r.extend(servicePolicy(web), &routesv1.RuleExtension{SessionPersistence: &routesv1.SessionPersistence{
			Name: "sid-" + kind.String(), Kind: kind, AbsoluteTimeout: durationpb.New(time.Hour),
		}})
		client := r.client()
		token := func(res *http.Response) string {
			if kind == routesv1.SessionPersistence_KIND_HEADER {
				return res.Header.Get("sid-" + kind.String())
			}
			for _, cookie := range res.Cookies() {
				if cookie.Name == "sid-"+kind.String() && cookie.HttpOnly && cookie.Path == "/" {
					return cookie.Value
				}
			}
			return ""
		}
		var first *http.Response
		eventually(t, "there are sessions", func() bool { first, _ = get(t, client, base+"/"); return token(first) != "" })
		again := func() *http.Response {
			req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, base+"/", nil)
			if kind == routesv1.SessionPersistence_KIND_HEADER {
				req.Header.Set("sid-"+kind.String(), token(first))
			} else {
				req.Header.Set("Cookie", "other=1; sid-"+kind.String()+"="+token(first))
			}
			res, _ := do(t, client, req)
			return res
		}
		home := first.Header.Get("X-From")
		for range 30 {
			if res := again(); res.Header.Get("X-From") != home || token(res) != "" {
				t.Fatalf("%v: from %s, want %s; a new token %q", kind, res.Header.Get("X-From"), home, token(res))
			}
		}
		// Its endpoint leaves: the session goes on elsewhere, with a new token.
		left := map[string]*server{"a": a, "b": b, "c": c}
		delete(left, home)
		var rest []netip.AddrPort
		for _, s := range left {
			rest = append(rest, s.addr)
		}
		r.controls.service(web, plain(rest[0]), plain(rest[1]))
		eventually(t, "it moves", func() bool { res := again(); return res.Header.Get("X-From") != home && token(res) != "" })
	}
}

func TestAttemptTimeoutOfARoute(t *testing.T) {
	r := start(t)
	var asked atomic.Int64
	app := serveHTTP(t, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if asked.Add(1) == 1 {
			<-req.Context().Done()
			return
		}
		_, _ = io.WriteString(w, "at last")
	}))
	r.controls.service(web, plain(app.addr))
	p := servicePolicy(web)
	rule := p.GetProtocol().GetDetect().GetHttp1().GetRoutes()[0].GetRules()[0]
	rule.Retry = retryOn(503, 20)
	rule.Timeouts = requestTimeout(time.Minute)
	r.extend(p, &routesv1.RuleExtension{AttemptTimeout: durationpb.New(time.Second)})
	if res, body := get(t, r.client(), base+"/"); res.StatusCode != 200 || body != "at last" || asked.Load() < 2 {
		t.Errorf("got %d %q after %d tries", res.StatusCode, body, asked.Load())
	}
}

// What a newer control plane asks for and this proxy cannot do fails the rule's
// requests, and no others.
func TestUnknownExtensionFailsItsRule(t *testing.T) {
	r := start(t)
	app := serveHTTP(t, echo("a"))
	r.controls.service(web, plain(app.addr))
	p := prefixed("/new")
	d := p.GetProtocol().GetDetect()
	old := prefixed("/old").GetProtocol().GetDetect().GetHttp1().GetRoutes()[0].GetRules()[0]
	d.Http1.Routes[0].Rules = append(d.GetHttp1().GetRoutes()[0].GetRules(), old)
	d.Http2.Routes = d.GetHttp1().GetRoutes()
	e := &routesv1.RuleExtension{Rule: 0}
	e.ProtoReflect().SetUnknown([]byte{0xf8, 0x07, 0x01}) // field 127
	r.extend(p, e)
	for path, want := range map[string]int{"/new": 500, "/old": 200} {
		if res, _ := get(t, r.client(), base+path); res.StatusCode != want {
			t.Errorf("%s: %d, want %d", path, res.StatusCode, want)
		}
	}
	r.extend(p, &routesv1.RuleExtension{Rule: 7})
	eventually(t, "an extension of nothing spoils the answer", func() bool { res, _ := get(t, r.client(), base+"/old"); return res.StatusCode == 500 })
}

// A GRPCRoute's response headers come from Weft's service only.
func TestResponseHeadersOfAGRPCRoute(t *testing.T) {
	r := start(t)
	app := serveHTTP(t, grpcHandler())
	r.controls.service(web, plain(app.addr))
	b := balancerOf(web)
	p := &outpb.OutboundPolicy{Metadata: serviceMeta("web"), Protocol: &outpb.ProxyProtocol{Kind: &outpb.ProxyProtocol_Grpc_{Grpc: &outpb.ProxyProtocol_Grpc{
		Routes: []*outpb.GrpcRoute{{Metadata: defaultMeta("grpc"), Rules: []*outpb.GrpcRoute_Rule{{Backends: &outpb.GrpcRoute_Distribution{
			Kind: &outpb.GrpcRoute_Distribution_FirstAvailable_{FirstAvailable: &outpb.GrpcRoute_Distribution_FirstAvailable{Backends: []*outpb.GrpcRoute_RouteBackend{{Backend: b}}}},
		}}}}},
	}}}}
	r.extend(p, &routesv1.RuleExtension{Filters: &routesv1.Filters{ResponseHeaders: &routesv1.HeaderModifier{Set: []*routesv1.Header{{Name: "x-set", Value: []byte("yes")}}}}})
	conn := r.grpc(web)
	if head := unary(t, conn); len(head.Get("x-set")) != 1 {
		t.Errorf("header %v", head)
	}
	bad := &routesv1.RuleExtension{}
	bad.ProtoReflect().SetUnknown([]byte{0xf8, 0x07, 0x01})
	r.extend(p, bad)
	eventually(t, "what is not known is UNIMPLEMENTED", func() bool {
		return status.Code(invoke(context.WithoutCancel(t.Context()), conn)) == codes.Unimplemented
	})
}

// base is the service web as a client asks for it.
const base = "http://web.shop.svc.cluster.local"

func invoke(ctx context.Context, conn *grpc.ClientConn, opts ...grpc.CallOption) error {
	return conn.Invoke(ctx, "/test.Echo/Unary", wrapperspb.String("x"), new(wrapperspb.StringValue), opts...)
}

func unary(t *testing.T, conn *grpc.ClientConn) metadata.MD {
	t.Helper()
	var head metadata.MD
	if err := invoke(t.Context(), conn, grpc.Header(&head)); err != nil {
		t.Fatal(err)
	}
	return head
}
