package outbound

import (
	"context"
	"io"
	"math"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	routepb "github.com/linkerd/linkerd2-proxy-api/go/http_route"
	outpb "github.com/linkerd/linkerd2-proxy-api/go/outbound"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/weftmesh/weft/proxy/internal/resolve"
)

func TestOverridesAreRead(t *testing.T) {
	type ranges = []resolve.StatusRange
	for in, want := range map[string]ranges{
		"5xx": {{Low: 500, High: 599}}, "gateway-error": {{Low: 502, High: 504}}, "503": {{Low: 503, High: 503}},
		" 500-501 , 504": {{Low: 500, High: 501}, {Low: 504, High: 504}}, "": nil, "x": nil, "600": nil, "504-500": nil, "99": nil, "5xx,x": {{Low: 500, High: 599}},
	} {
		if diff := cmp.Diff(want, statusesOf(in)); diff != "" {
			t.Errorf("%q: %s", in, diff)
		}
	}
	for in, want := range map[string][]int{
		"unavailable": {14}, "Cancelled, deadline-exceeded,internal , resource-exhausted": {1, 4, 13, 8}, "ok": nil, "": nil,
	} {
		if diff := cmp.Diff(want, codesOf(in)); diff != "" {
			t.Errorf("%q: %s", in, diff)
		}
	}
	for in, want := range map[string]time.Duration{
		"10ms": 10 * time.Millisecond, "2s": 2 * time.Second, " 3m ": 3 * time.Minute, "1h": time.Hour, "1d": 24 * time.Hour,
		"": 0, "5": 0, "0s": 0, "-1s": 0, "1.5s": 0, "s": 0, "9999999999999999999s": 0, "1 s": 0,
	} {
		if got, ok := duration(in); got != want || ok != (want > 0) {
			t.Errorf("%q: %v, %v", in, got, ok)
		}
	}
}

func FuzzOverrides(f *testing.F) {
	f.Add("5xx,500-501", "1d")
	f.Fuzz(func(t *testing.T, statuses, d string) {
		for _, s := range statusesOf(statuses) {
			if s.Low < 100 || s.High > 599 || s.Low > s.High {
				t.Errorf("%q: %v", statuses, s)
			}
		}
		if got, ok := duration(d); ok && got <= 0 {
			t.Errorf("%q: %v", d, got)
		}
	})
}

// Headers of a request ask for tries and times; only where the route allows it.
func TestRequestHeadersOverride(t *testing.T) {
	var asked atomic.Int64
	var leaked atomic.Value
	leaked.Store("")
	app := serveHTTP(t, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		for name := range req.Header {
			if strings.HasPrefix(name, "L5d-") {
				leaked.Store(name)
			}
		}
		n := asked.Add(1)
		switch {
		case req.URL.Path == "/slow":
			<-req.Context().Done()
		case req.URL.Path == "/first-slow" && n == 1:
			<-req.Context().Done()
		case req.URL.Path == "/first-slow" || n > 2:
			_, _ = io.WriteString(w, "ok")
		default:
			w.WriteHeader(503)
		}
	}))
	for _, allowed := range []bool{true, false} {
		r := start(t)
		b := balancerOf(web)
		rule := httpRule(b)
		rule.AllowL5DRequestHeaders = allowed
		r.policy(detectPolicy(b, rule, nil))
		r.controls.service(web, plain(app.addr))
		ask := func(path string, headers ...string) int {
			asked.Store(0)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			req, _ := http.NewRequestWithContext(ctx, http.MethodGet, base+path, nil)
			for i := 0; i < len(headers); i += 2 {
				req.Header.Set(headers[i], headers[i+1])
			}
			res, _ := do(t, r.client(), req)
			return res.StatusCode
		}
		if !allowed {
			if got := ask("/", "L5d-Retry-Http", "5xx", "L5d-Retry-Limit", "5"); got != 503 || asked.Load() != 1 || leaked.Load() == "" {
				t.Errorf("not allowed: %d after %d tries, the application saw %q", got, asked.Load(), leaked.Load())
			}
			continue
		}
		if got := ask("/", "L5d-Retry-Http", "5xx"); got != 503 || asked.Load() != 2 {
			t.Errorf("one more try is what there is without a limit: %d after %d tries", got, asked.Load())
		}
		if got := ask("/", "L5d-Retry-Http", "gateway-error", "L5d-Retry-Limit", "2"); got != 200 || asked.Load() != 3 {
			t.Errorf("two more: %d after %d tries", got, asked.Load())
		}
		if got := ask("/", "L5d-Retry-Http", "500", "L5d-Retry-Limit", "2"); got != 503 || asked.Load() != 1 {
			t.Errorf("of another status: %d after %d tries", got, asked.Load())
		}
		if got := ask("/first-slow", "L5d-Retry-Http", "5xx", "L5d-Retry-Timeout", "100ms", "L5d-Retry-Limit", "3"); got != 200 || asked.Load() < 2 {
			t.Errorf("a try that is too slow: %d after %d tries", got, asked.Load())
		}
		for _, name := range []string{"L5d-Timeout", "L5d-Request-Timeout", "L5d-Response-Timeout"} {
			if got := ask("/slow", name, "50ms"); got != 504 {
				t.Errorf("%s: %d", name, got)
			}
		}
		if got := leaked.Load(); got != "" {
			t.Errorf("the application saw %s", got)
		}
	}
}

func TestGRPCHeadersOverride(t *testing.T) {
	r := start(t)
	var asked atomic.Int64
	app := serveHTTP(t, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		_, _ = io.ReadAll(req.Body)
		w.Header().Set("Content-Type", "application/grpc")
		w.Header().Set("Trailer", "Grpc-Status")
		if asked.Add(1) > 2 {
			_, _ = w.Write([]byte{0, 0, 0, 0, 0})
			w.Header().Set("Grpc-Status", "0")
			return
		}
		w.WriteHeader(200)
		w.Header().Set("Grpc-Status", "14")
	}))
	b := balancerOf(web)
	r.policy(&outpb.OutboundPolicy{Metadata: serviceMeta("web"), Protocol: &outpb.ProxyProtocol{Kind: &outpb.ProxyProtocol_Grpc_{Grpc: &outpb.ProxyProtocol_Grpc{
		Routes: []*outpb.GrpcRoute{{Metadata: defaultMeta("grpc"), Rules: []*outpb.GrpcRoute_Rule{{AllowL5DRequestHeaders: true, Backends: &outpb.GrpcRoute_Distribution{
			Kind: &outpb.GrpcRoute_Distribution_FirstAvailable_{FirstAvailable: &outpb.GrpcRoute_Distribution_FirstAvailable{Backends: []*outpb.GrpcRoute_RouteBackend{{Backend: b}}}},
		}}}}},
	}}}})
	r.controls.service(web, plain(app.addr))
	conn := r.grpc(web)
	call := func(pairs ...string) codes.Code {
		asked.Store(0)
		return status.Code(conn.Invoke(metadata.AppendToOutgoingContext(t.Context(), pairs...), "/test.Echo/Unary", wrapperspb.String("q"), new(wrapperspb.StringValue)))
	}
	if got := call(); got != codes.Unavailable || asked.Load() != 1 {
		t.Errorf("without: %v after %d tries", got, asked.Load())
	}
	if got := call("l5d-retry-grpc", "unavailable", "l5d-retry-limit", "2"); got != codes.OK || asked.Load() != 3 {
		t.Errorf("with: %v after %d tries", got, asked.Load())
	}
	if got := r.series("outbound_grpc_route_retry_requests_total", nil); got != 2 {
		t.Errorf("%v retries were counted, want 2", got)
	}
	if got := call("l5d-retry-grpc", "internal", "l5d-retry-limit", "2"); got != codes.Unavailable || asked.Load() != 1 {
		t.Errorf("of another code: %v after %d tries", got, asked.Load())
	}
}

// The times of a rule: over the head, over a body that comes, over one that goes.
func TestTimeoutsOfARule(t *testing.T) {
	const soon = 100 * time.Millisecond
	app := serveHTTP(t, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		switch req.URL.Path {
		case "/head": // no answer
			<-req.Context().Done()
		case "/body": // an answer that stops
			_, _ = io.WriteString(w, "begins")
			_ = http.NewResponseController(w).Flush()
			<-req.Context().Done()
		case "/reads": // the end of the request is waited for
			_, _ = io.ReadAll(req.Body)
			_, _ = io.WriteString(w, "read")
		case "/drips": // something all the time, for longer than anything may be idle
			for range 8 {
				_, _ = io.WriteString(w, "x")
				_ = http.NewResponseController(w).Flush()
				<-time.After(soon / 4)
			}
		}
	}))
	for _, tt := range []struct {
		name     string
		timeouts *routepb.Timeouts
		path     string
		upload   bool // the request's body does not end
		status   int  // 0 is an answer that breaks off
	}{
		{"request, on the head", &routepb.Timeouts{Request: durationpb.New(soon)}, "/head", false, 504},
		{"request, on the answer's body", &routepb.Timeouts{Request: durationpb.New(time.Second)}, "/body", false, 0},
		{"request, on its body", &routepb.Timeouts{Request: durationpb.New(soon)}, "/reads", true, 504},
		{"response, on the head", &routepb.Timeouts{Response: durationpb.New(soon)}, "/head", false, 504},
		{"response, on its body", &routepb.Timeouts{Response: durationpb.New(time.Second)}, "/body", false, 0},
		{"idle, on the head", &routepb.Timeouts{Idle: durationpb.New(soon)}, "/head", false, 504},
		{"idle, on the request's body", &routepb.Timeouts{Idle: durationpb.New(soon)}, "/reads", true, 504},
		{"idle, on the answer's body", &routepb.Timeouts{Idle: durationpb.New(time.Second)}, "/body", false, 0},
		{"not idle", &routepb.Timeouts{Idle: durationpb.New(200 * soon)}, "/drips", false, 200},
		{"in time", &routepb.Timeouts{Request: durationpb.New(time.Hour), Response: durationpb.New(time.Hour), Idle: durationpb.New(time.Hour)}, "/drips", false, 200},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel() // they wait, mostly
			r := start(t)
			b := balancerOf(web)
			rule := httpRule(b)
			rule.Timeouts = tt.timeouts
			r.policy(detectPolicy(b, rule, nil))
			r.controls.service(web, plain(app.addr))
			req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, base+tt.path, nil)
			if tt.upload {
				pr, pw := io.Pipe()
				defer func() { _ = pw.Close() }()
				go func() { _, _ = io.WriteString(pw, "begins") }()
				req.Body, req.ContentLength = pr, -1
			}
			res, err := r.client().Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = res.Body.Close() }()
			_, err = io.ReadAll(res.Body)
			// On a slow machine the head may be too late, too.
			if tt.status == 0 && res.StatusCode != 504 && (res.StatusCode != 200 || err == nil) || tt.status != 0 && (res.StatusCode != tt.status || err != nil) {
				t.Errorf("got %d, body %v; want %d", res.StatusCode, err, tt.status)
			}
			if tt.status == 504 && res.Close && !tt.upload {
				t.Error("the client's connection is closed for a timeout of the policy")
			}
		})
	}
}

// The time of a response begins when the request has been sent whole, however long
// that takes.
func TestResponseTimeBeginsBehindTheRequest(t *testing.T) {
	t.Parallel() // it waits, mostly
	const within = 2 * time.Second
	app := serveHTTP(t, echo("a"))
	r := start(t)
	b := balancerOf(web)
	rule := httpRule(b)
	rule.Timeouts = &routepb.Timeouts{Response: durationpb.New(within)}
	r.policy(detectPolicy(b, rule, nil))
	r.controls.service(web, plain(app.addr))
	pr, pw := io.Pipe()
	go func() {
		_, _ = io.WriteString(pw, "begins, ")
		<-time.After(within + within/4)
		_, _ = io.WriteString(pw, "and ends")
		_ = pw.Close()
	}()
	req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, base+"/", pr)
	if res, body := do(t, r.client(), req); res.StatusCode != 200 || body != "a begins, and ends" {
		t.Errorf("got %d %q", res.StatusCode, body)
	}
}

// Retries by a policy: what is tried again, how often, and what is not.
func TestPolicyRetries(t *testing.T) {
	vast := &outpb.HttpRoute_Retry{MaxRetries: 3, MaxRequestBytes: math.MaxUint32, Conditions: retryOn(500, 1).GetConditions()}
	for _, tt := range []struct {
		name    string
		retry   *outpb.HttpRoute_Retry
		timeout time.Duration
		app     func(n int64, w http.ResponseWriter, req *http.Request)
		body    string
		status  int
		tries   int64 // 0 is any
	}{
		{"a status", retryOn(500, 3), 0, failTimes(2, 500), "", 200, 3},
		{"with its body", retryOn(500, 3), 0, failTimes(2, 500), "hello", 200, 3},
		{"up to the limit", retryOn(500, 2), 0, failTimes(9, 500), "", 500, 3},
		{"not another status", retryOn(500, 2), 0, failTimes(9, 503), "", 503, 1},
		{"not with a body beyond the bound", &outpb.HttpRoute_Retry{MaxRetries: 3, MaxRequestBytes: 4, Conditions: retryOn(500, 1).GetConditions()}, 0, failTimes(2, 500), "hello", 500, 1},
		{"not with a body beyond what a policy may ask for", vast, 0, failTimes(2, 500), strings.Repeat("x", resolve.MaxReplay+1), 500, 1},
		{"with one of just that", vast, 0, failTimes(2, 500), strings.Repeat("x", resolve.MaxReplay), 200, 3},
		{"not before the whole body was read", retryOn(500, 3), 0, func(_ int64, w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) }, strings.Repeat("x", 60<<10), 500, 0},
		{"too slow a head, but for the last try", func() *outpb.HttpRoute_Retry {
			retry := retryOn(500, 2)
			retry.Timeout = durationpb.New(100 * time.Millisecond)
			return retry
		}(), 0, func(_ int64, w http.ResponseWriter, req *http.Request) {
			select {
			case <-req.Context().Done():
			case <-time.After(2 * time.Second): // longer than a try may take that is not the last
				_, _ = io.WriteString(w, "hello")
			}
		}, "", 200, 3},
		{"within the time of all", retryOn(500, 1000), 300 * time.Millisecond, failTimes(1<<40, 500), "", 504, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel() // they wait, mostly
			r := start(t)
			var asked atomic.Int64
			app := serveHTTP(t, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) { tt.app(asked.Add(1), w, req) }))
			b := balancerOf(web)
			rule := httpRule(b)
			rule.Retry = tt.retry
			if tt.timeout > 0 {
				rule.Timeouts = requestTimeout(tt.timeout)
			}
			r.policy(detectPolicy(b, rule, nil))
			r.controls.service(web, plain(app.addr))
			req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, base+"/", strings.NewReader(tt.body))
			res, body := do(t, r.client(), req)
			if res.StatusCode != tt.status || tt.status == 200 && body != tt.body && body != "hello" {
				t.Errorf("got %d %q, want %d", res.StatusCode, body, tt.status)
			}
			// One that is given up may not have come to the application.
			tries, came := 1+int64(r.series("outbound_http_route_retry_requests_total", nil)), asked.Load()
			if tt.tries > 0 && (tries != tt.tries || came > tries || came < tries && tt.retry.Timeout == nil) {
				t.Errorf("%d tries, of which %d came to the application; want %d", tries, came, tt.tries)
			}
		})
	}
}

// failTimes fails some requests and echoes the rest.
func failTimes(n int64, with int) func(int64, http.ResponseWriter, *http.Request) {
	return func(i int64, w http.ResponseWriter, req *http.Request) {
		body, _ := io.ReadAll(req.Body)
		if i <= n {
			w.WriteHeader(with)
			return
		}
		_, _ = w.Write(body)
	}
}

// An endpoint that asks to be left alone for a while is, where the balancer has a
// penalty; Retry-After or not, others get the requests.
func TestRetryAfterIsHeeded(t *testing.T) {
	r := start(t)
	var asked atomic.Int64
	busy := serveHTTP(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		w.Header().Set("Retry-After", "120")
		w.WriteHeader(429)
	}))
	good := serveHTTP(t, echo("good"))
	b := balancerOf(web)
	b.GetBalancer().Load = &outpb.Backend_BalanceP2C_PenaltyPeakEwma_{PenaltyPeakEwma: &outpb.Backend_BalanceP2C_PenaltyPeakEwma{}}
	r.policy(detectPolicy(b, httpRule(b), nil))
	r.controls.service(web, plain(busy.addr), plain(good.addr))
	c := r.client()
	for range 200 {
		get(t, c, base+"/")
	}
	if n := asked.Load(); n > 2 {
		t.Errorf("an endpoint that asked for two minutes was asked %d times", n)
	}
}

// A peer's proxy that wants the client's connection closed is heard where there is
// no other endpoint, and only from a peer that has proved who it is.
func TestProxyConnectionClose(t *testing.T) {
	r := start(t)
	closes := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("L5d-Proxy-Connection", "close")
		w.Header().Set("L5d-Proxy-Error", "mine")
	})
	peer := newSidecar(t, r.ca, "web.shop", closes)
	unmeshed := serveHTTP(t, closes)
	forward := func(authority string, e *outpb.Backend_Forward) {
		b := &outpb.Backend{Metadata: serviceMeta("web"), Queue: &outpb.Queue{Capacity: 1, FailfastTimeout: durationpb.New(time.Second)}, Kind: e}
		r.controls.set(func() { r.controls.policies[authority] = detectPolicy(b, httpRule(b), nil) })
	}
	const meshedOne, plainOne = "meshed.shop.svc.cluster.local:80", "plain.shop.svc.cluster.local:80"
	forward(meshedOne, &outpb.Backend_Forward{Forward: meshed(peer.addr, "web.shop", peer.addr.Port())})
	forward(plainOne, &outpb.Backend_Forward{Forward: plain(unmeshed.addr)})
	r.controls.service(web, meshed(peer.addr, "web.shop", peer.addr.Port()))
	for authority, want := range map[string]bool{meshedOne: true, plainOne: false, web: false} {
		res, _ := get(t, r.client(), "http://"+authority+"/")
		if res.StatusCode != 200 || res.Close != want || res.Header.Get("L5d-Proxy-Connection") != "" || res.Header.Get("L5d-Proxy-Error") != "" {
			t.Errorf("%s: %d, closed %v, want %v; %v", authority, res.StatusCode, res.Close, want, res.Header)
		}
	}
}
