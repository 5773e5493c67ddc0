package outbound

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	routepb "github.com/linkerd/linkerd2-proxy-api/go/http_route"
	outpb "github.com/linkerd/linkerd2-proxy-api/go/outbound"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/weftmesh/weft/proxy/internal/config"
)

func retryOn(status uint32, limit uint32) *outpb.HttpRoute_Retry {
	return &outpb.HttpRoute_Retry{
		MaxRetries: limit, MaxRequestBytes: 65536,
		Conditions: &outpb.HttpRoute_Retry_Conditions{StatusRanges: []*outpb.HttpRoute_Retry_Conditions_StatusRange{{Start: status, End: status}}},
		Backoff:    &outpb.ExponentialBackoff{MinBackoff: durationpb.New(time.Millisecond), MaxBackoff: durationpb.New(2 * time.Millisecond)},
	}
}

func requestTimeout(d time.Duration) *routepb.Timeouts {
	return &routepb.Timeouts{Request: durationpb.New(d)}
}

func (r *rig) policy(p *outpb.OutboundPolicy) {
	r.controls.set(func() { r.controls.policies[web] = p })
}

func TestInvalidPolicyIsAnswered(t *testing.T) {
	r := start(t)
	r.policy(&outpb.OutboundPolicy{Metadata: serviceMeta("web")})
	if res, _ := get(t, r.client(), "http://web.shop.svc.cluster.local/"); res.StatusCode != 500 || !strings.Contains(res.Header.Get("L5d-Proxy-Error"), "invalid client policy") {
		t.Errorf("got %d %v", res.StatusCode, res.Header)
	}
}

func TestRoutesOfAPolicy(t *testing.T) {
	r := start(t)
	app := serveHTTP(t, echo("a"))
	b := balancerOf(web)
	path := func(p string, rule *outpb.HttpRoute_Rule) *outpb.HttpRoute_Rule {
		rule.Matches = []*routepb.HttpRouteMatch{{Path: &routepb.PathMatch{Kind: &routepb.PathMatch_Prefix{Prefix: p}}}}
		return rule
	}
	filtered := func(f *outpb.HttpRoute_Filter) *outpb.HttpRoute_Rule {
		rule := httpRule(b)
		rule.Filters = []*outpb.HttpRoute_Filter{f}
		return rule
	}
	policy := detectPolicy(b, path("/ok", httpRule(b)), nil)
	routes := policy.GetProtocol().GetDetect().GetHttp1().GetRoutes()
	routes[0].Rules = append(routes[0].Rules,
		path("/teapot", filtered(&outpb.HttpRoute_Filter{Kind: &outpb.HttpRoute_Filter_FailureInjector{FailureInjector: &routepb.HttpFailureInjector{Status: 418, Message: "short and stout"}}})),
		path("/old", filtered(&outpb.HttpRoute_Filter{Kind: &outpb.HttpRoute_Filter_Redirect{Redirect: &routepb.RequestRedirect{Path: &routepb.PathModifier{Replace: &routepb.PathModifier_Prefix{Prefix: "/new"}}}}})),
		path("/nowhere", httpRule(&outpb.Backend{Metadata: serviceMeta("gone")})),
		path("/empty", &outpb.HttpRoute_Rule{Backends: &outpb.HttpRoute_Distribution{Kind: &outpb.HttpRoute_Distribution_Empty_{}}}),
	)
	r.policy(policy)
	r.controls.service(web, plain(app.addr))
	for _, tt := range []struct {
		path, header, want string
		status             int
	}{
		{"/ok", "X-From", "a", 200},
		{"/other", "L5d-Proxy-Error", "no route", 404},
		{"/teapot", "L5d-Proxy-Error", "short and stout", 418},
		{"/old/x?q", "Location", "http://web.shop.svc.cluster.local/new/x?q", 301},
		{"/nowhere", "L5d-Proxy-Error", "backend for Service shop/gone has no dispatcher", 502},
		{"/empty", "L5d-Proxy-Error", "no backend is available", 503},
	} {
		if res, _ := get(t, r.client(), "http://web.shop.svc.cluster.local"+tt.path); res.StatusCode != tt.status || res.Header.Get(tt.header) != tt.want {
			t.Errorf("%s: %d, %s: %q", tt.path, res.StatusCode, tt.header, res.Header.Get(tt.header))
		}
	}
}

func TestFailureAccrualLeavesABadEndpoint(t *testing.T) {
	r := start(t)
	var asked atomic.Int64
	bad := serveHTTP(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		w.WriteHeader(500)
	}))
	good := serveHTTP(t, echo("good"))
	b := balancerOf(web)
	r.policy(detectPolicy(b, httpRule(b), &outpb.FailureAccrual{Kind: &outpb.FailureAccrual_ConsecutiveFailures_{ConsecutiveFailures: &outpb.FailureAccrual_ConsecutiveFailures{
		MaxFailures: 3, Backoff: &outpb.ExponentialBackoff{MinBackoff: durationpb.New(time.Minute), MaxBackoff: durationpb.New(time.Minute)},
	}}}))
	c := r.client()
	// Alone, so that each request comes to it: of two, the one that answers faster on
	// this machine would get all.
	r.controls.service(web, plain(bad.addr))
	for range 3 {
		if res, _ := get(t, c, base+"/"); res.StatusCode != 500 {
			t.Fatalf("got %d from the bad endpoint", res.StatusCode)
		}
	}
	r.controls.service(web, plain(bad.addr), plain(good.addr))
	for range 200 {
		if res, _ := get(t, c, base+"/"); res.StatusCode != 200 {
			t.Fatalf("got %d with a good endpoint", res.StatusCode)
		}
	}
	if got := asked.Load(); got != 3 {
		t.Errorf("the bad endpoint was asked %d times, want 3", got)
	}
}

// A client that leaves in the middle of an answer says nothing about the endpoint;
// the head of that answer may.
func TestFailureAccrualOfAbandonedAnswers(t *testing.T) {
	for _, tt := range []struct {
		status int
		grpc   string // in the head
		next   int    // what another request gets: 504 if the endpoint, the only one, is left alone
	}{{500, "", 504}, {200, "13", 504}, {200, "", 200}, {404, "", 200}} {
		t.Run(fmt.Sprint(tt.status, tt.grpc), func(t *testing.T) {
			t.Parallel() // they wait, mostly
			r := start(t)
			dropped := make(chan struct{}, 3)
			app := serveHTTP(t, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
				if req.URL.Path != "/long" {
					return
				}
				if tt.grpc != "" {
					w.Header().Set("Grpc-Status", tt.grpc)
				}
				w.WriteHeader(tt.status)
				_, _ = io.WriteString(w, "it begins")
				_ = http.NewResponseController(w).Flush()
				<-req.Context().Done()
				dropped <- struct{}{}
			}))
			b := balancerOf(web)
			r.policy(detectPolicy(b, httpRule(b), &outpb.FailureAccrual{Kind: &outpb.FailureAccrual_ConsecutiveFailures_{ConsecutiveFailures: &outpb.FailureAccrual_ConsecutiveFailures{
				MaxFailures: 3, Backoff: &outpb.ExponentialBackoff{MinBackoff: durationpb.New(time.Minute), MaxBackoff: durationpb.New(time.Minute)},
			}}}))
			r.controls.service(web, plain(app.addr))
			c := r.client()
			for range 3 {
				req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, base+"/long", nil)
				if tt.grpc != "" {
					req.Header.Set("Content-Type", "application/grpc")
				}
				res, err := c.Do(req)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := io.ReadFull(res.Body, make([]byte, 9)); err != nil || res.StatusCode != tt.status {
					t.Fatalf("got %d, %v", res.StatusCode, err)
				}
				_ = res.Body.Close()
				<-dropped // and what it counts for is counted before
			}
			if res, _ := get(t, c, base+"/"); res.StatusCode != tt.next {
				t.Errorf("then it got %d, want %d", res.StatusCode, tt.next)
			}
		})
	}
}

func TestRequireID(t *testing.T) {
	r := start(t)
	peer := newSidecar(t, r.ca, "web.shop", echo("a"))
	r.controls.service(web, meshed(peer.addr, "web.shop", peer.addr.Port()))
	for id, want := range map[string]int{"web.shop": 200, "other.shop": 502} {
		req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://web.shop.svc.cluster.local/", nil)
		req.Header.Set("L5d-Require-Id", id)
		if res, _ := do(t, r.client(), req); res.StatusCode != want {
			t.Errorf("require %s: %d, want %d", id, res.StatusCode, want)
		}
	}
}

func TestIngressGoesWhereTheHeaderSays(t *testing.T) {
	r := start(t, func(c *config.Config) { c.Ingress = true })
	app := serveHTTP(t, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		_, _ = io.WriteString(w, req.Host+req.Header.Get("L5d-Dst-Override"))
	}))
	r.controls.service(web, plain(app.addr))
	other := serveHTTP(t, echo("the original destination"))
	conn, br := r.redirected(other.addr)
	if res, body := ask(t, conn, br, "GET / HTTP/1.1\r\nHost: shop.example\r\nL5d-Dst-Override: web.shop.svc.cluster.local\r\n\r\n"); res.StatusCode != 200 || body != "shop.example" {
		t.Errorf("got %d %q", res.StatusCode, body)
	}
	if res, body := ask(t, conn, br, "GET / HTTP/1.1\r\nHost: shop.example\r\n\r\n"); res.StatusCode != 200 || body != "the original destination " {
		t.Errorf("without the header: %d %q", res.StatusCode, body)
	}
}

// An HTTP/2 client may speak to the proxy at once: its requests say where they go.
func TestHTTP2WithoutATunnel(t *testing.T) {
	r := start(t)
	app := serveHTTP(t, echo("a"))
	r.controls.service(web, plain(app.addr))
	p := new(http.Protocols)
	p.SetUnencryptedHTTP2(true)
	tr := &http.Transport{Protocols: p, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", r.addr)
	}}
	defer tr.CloseIdleConnections()
	res, body := get(t, &http.Client{Transport: tr}, "http://web.shop.svc.cluster.local/x")
	if res.StatusCode != 200 || body != "a " || res.ProtoMajor != 2 || res.Header.Get("X-Proto") != "HTTP/2.0" {
		t.Errorf("got %d %q %s %v", res.StatusCode, body, res.Proto, res.Header)
	}
}

func TestDrainSendsIdleGRPCClientsAway(t *testing.T) {
	r := start(t)
	const authority = "web.shop.svc.cluster.local:9000"
	peer := newSidecar(t, r.ca, "web.shop", grpcHandler())
	r.controls.service(authority, meshed(peer.addr, "web.shop", peer.addr.Port()))
	conn := r.grpc(authority)
	if err := conn.Invoke(t.Context(), "/test.Echo/Unary", wrapperspb.String("x"), new(wrapperspb.StringValue)); err != nil {
		t.Fatal(err)
	}
	r.drain.Begin()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if !conn.WaitForStateChange(ctx, connectivity.Ready) {
		t.Error("the client was not sent away")
	}
	if err := r.drain.Wait(ctx); err != nil {
		t.Errorf("Wait() = %v with %d open", err, r.drain.Open())
	}
}

func TestTargetsAreForgottenWhenIdle(t *testing.T) {
	r := start(t, func(c *config.Config) { c.Outbound.DiscoveryIdle = 20 * time.Millisecond })
	app := serveHTTP(t, echo("a"))
	r.controls.service(web, plain(app.addr))
	get(t, r.client(), "http://web.shop.svc.cluster.local/")
	eventually(t, "nothing is kept", func() bool { return r.out.targets.len() == 0 && r.out.pools.len() == 0 })
	eventually(t, "the connection to the endpoint is closed", func() bool {
		return r.series("tcp_open_connections", map[string]string{"peer": "dst"}) == 0
	})
	get(t, r.client(), "http://web.shop.svc.cluster.local/")
	if got := r.controls.streams("policy " + web); got != 2 {
		t.Errorf("asked for the policy %d times, want 2", got)
	}
}
