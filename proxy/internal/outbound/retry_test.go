package outbound

import (
	"context"
	"io"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	outpb "github.com/linkerd/linkerd2-proxy-api/go/outbound"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/weftmesh/weft/proxy/internal/config"
)

// Retries by the policy of a GRPCRoute: by the codes that it names, wherever they
// are said, and when a try's head is too slow.
func TestPolicyRetriesOfGRPC(t *testing.T) {
	conditions := &outpb.GrpcRoute_Retry_Conditions{Internal: true, Unavailable: true}
	for _, tt := range []struct {
		name  string
		retry *outpb.GrpcRoute_Retry
		app   func(n int64, w http.ResponseWriter, req *http.Request)
		code  codes.Code
		tries float64
	}{
		{"in the head", &outpb.GrpcRoute_Retry{MaxRetries: 2, MaxRequestBytes: 1000, Conditions: conditions}, func(n int64, w http.ResponseWriter, _ *http.Request) {
			if n <= 2 {
				w.Header().Set("Grpc-Status", "13")
				return
			}
			answerGRPC(w, "0")
		}, codes.OK, 3},
		{"in trailers alone", &outpb.GrpcRoute_Retry{MaxRetries: 2, MaxRequestBytes: 1000, Conditions: conditions}, func(n int64, w http.ResponseWriter, _ *http.Request) {
			if n <= 2 {
				w.Header().Set("Trailer", "Grpc-Status")
				w.WriteHeader(200)
				w.(http.Flusher).Flush()
				w.Header().Set("Grpc-Status", "14")
				return
			}
			answerGRPC(w, "0")
		}, codes.OK, 3},
		{"not what the trailer of a message says is well", &outpb.GrpcRoute_Retry{MaxRetries: 2, MaxRequestBytes: 1000, Conditions: conditions}, func(_ int64, w http.ResponseWriter, _ *http.Request) {
			answerGRPC(w, "0")
		}, codes.OK, 1},
		{"up to the limit", &outpb.GrpcRoute_Retry{MaxRetries: 1, MaxRequestBytes: 1000, Conditions: conditions}, func(_ int64, w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Grpc-Status", "13")
		}, codes.Internal, 2},
		{"not of another code", &outpb.GrpcRoute_Retry{MaxRetries: 2, MaxRequestBytes: 1000, Conditions: conditions}, func(_ int64, w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Grpc-Status", "8")
		}, codes.ResourceExhausted, 1},
		{"not of a message beyond the bound", &outpb.GrpcRoute_Retry{MaxRetries: 2, MaxRequestBytes: 3, Conditions: conditions}, func(_ int64, w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Grpc-Status", "13")
		}, codes.Internal, 1},
		{"when its head is too slow", &outpb.GrpcRoute_Retry{MaxRetries: 1, MaxRequestBytes: 1000, Timeout: durationpb.New(time.Second), Conditions: conditions}, func(n int64, w http.ResponseWriter, req *http.Request) {
			if n == 1 {
				<-req.Context().Done()
				return
			}
			answerGRPC(w, "0")
		}, codes.OK, 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel() // some wait
			r := start(t, patient)
			var asked atomic.Int64
			app := serveHTTP(t, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
				_, _ = io.ReadAll(req.Body)
				w.Header().Set("Content-Type", "application/grpc")
				tt.app(asked.Add(1), w, req)
			}))
			r.policy(&outpb.OutboundPolicy{Metadata: serviceMeta("web"), Protocol: &outpb.ProxyProtocol{Kind: &outpb.ProxyProtocol_Grpc_{Grpc: &outpb.ProxyProtocol_Grpc{
				Routes: []*outpb.GrpcRoute{{Metadata: defaultMeta("grpc"), Rules: []*outpb.GrpcRoute_Rule{{Retry: tt.retry, Backends: &outpb.GrpcRoute_Distribution{
					Kind: &outpb.GrpcRoute_Distribution_FirstAvailable_{FirstAvailable: &outpb.GrpcRoute_Distribution_FirstAvailable{Backends: []*outpb.GrpcRoute_RouteBackend{{Backend: balancerOf(web)}}}},
				}}}}},
			}}}})
			r.controls.service(web, plain(app.addr))
			err := invoke(t.Context(), r.grpc(web))
			if tries := 1 + r.series("outbound_grpc_route_retry_requests_total", nil); status.Code(err) != tt.code || tries != tt.tries {
				t.Errorf("got %v after %v tries, want %v after %v", err, tries, tt.code, tt.tries)
			}
		})
	}
}

// answerGRPC is a message, and a trailer behind it.
func answerGRPC(w http.ResponseWriter, code string) {
	w.Header().Set("Trailer", "Grpc-Status")
	_, _ = w.Write([]byte{0, 0, 0, 0, 0})
	w.Header().Set("Grpc-Status", code)
}

// shared is a policy of two backends that share the requests.
func shared(retry *outpb.HttpRoute_Retry, accrual *outpb.FailureAccrual, names ...string) *outpb.OutboundPolicy {
	split := &outpb.HttpRoute_Distribution_RandomAvailable{}
	for _, name := range names {
		split.Backends = append(split.Backends, &outpb.HttpRoute_WeightedRouteBackend{Weight: 1, Backend: &outpb.HttpRoute_RouteBackend{Backend: balancerOf(name)}})
	}
	rule := &outpb.HttpRoute_Rule{Retry: retry, Backends: &outpb.HttpRoute_Distribution{Kind: &outpb.HttpRoute_Distribution_RandomAvailable_{RandomAvailable: split}}}
	return detectPolicy(balancerOf(names[0]), rule, accrual)
}

// A backend without endpoints fails fast. Where tries are allowed the request then
// goes to another backend, and later ones do so at once.
func TestRetryLeavesABackendWithoutEndpoints(t *testing.T) {
	const other = "other.shop.svc.cluster.local:80"
	r := start(t, func(c *config.Config) {
		c.Outbound.HTTPQueue.Failfast = 200 * time.Millisecond
		c.Outbound.ConnectTimeout = 10 * time.Second
	})
	app := serveHTTP(t, echo("other"))
	r.controls.service(other, plain(app.addr))
	r.controls.service(web)
	warm, _ := get(t, r.client(), "http://"+other+"/") // its connection is there
	if warm.StatusCode != 200 {
		t.Fatalf("got %d", warm.StatusCode)
	}
	r.policy(shared(retryOn(503, 1), nil, web, other))
	c := r.client()
	for i := range 40 {
		if res, _ := get(t, c, base+"/"); res.StatusCode != 200 || res.Header.Get("X-From") != "other" {
			t.Fatalf("request %d: %d %v", i, res.StatusCode, res.Header)
		}
	}
	if n := r.series("outbound_http_route_retry_requests_total", nil); n != 1 {
		t.Errorf("%v requests went to the backend without endpoints, want one", n)
	}
}

// A failure is better than nothing: where there is no backend left for another try
// the client gets the answer that there is, and the try is counted as one too many.
func TestRetryWithoutABackendKeepsTheAnswer(t *testing.T) {
	r := start(t, func(c *config.Config) {
		c.Outbound.HTTPQueue.Failfast = 100 * time.Millisecond
		c.Outbound.ConnectTimeout = 10 * time.Second
	})
	const other = "other.shop.svc.cluster.local:80"
	gone, answer := make(chan struct{}), make(chan struct{})
	app := serveHTTP(t, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.URL.Path == "/" {
			close(gone)
			<-answer
			w.Header().Set("X-From", "web")
			w.WriteHeader(503)
		}
	}))
	r.controls.service(other)
	r.controls.service(web, plain(app.addr))
	r.policy(shared(retryOn(503, 1), nil, web, other))
	eventually(t, "the backend without endpoints is known for it", func() bool {
		res, _ := get(t, r.client(), base+"/warm")
		return res.StatusCode == 200 && r.series("outbound_http_balancer_queue_gate_shut_total", nil) > 0
	})
	done := make(chan *http.Response, 1)
	go func() {
		req, _ := http.NewRequestWithContext(context.WithoutCancel(t.Context()), http.MethodGet, base+"/", nil)
		res, err := r.client().Do(req)
		if err == nil {
			_ = res.Body.Close()
		}
		done <- res
	}()
	<-gone
	r.controls.service(web) // its endpoint leaves while the request is there
	eventually(t, "no backend is left", func() bool { res, _ := get(t, r.client(), base+"/warm"); return res.StatusCode == 503 })
	close(answer)
	if res := <-done; res == nil || res.StatusCode != 503 || res.Header.Get("X-From") != "web" {
		t.Errorf("got %v, want the backend's own answer", res)
	}
	if n := r.series("outbound_http_route_retry_overflow_total", nil); n != 1 {
		t.Errorf("%v were counted, want 1", n)
	}
}

// Unified accrual by a policy: an endpoint whose rate of successes is too low, where
// asking for less counts as none, is left alone, and is back when a probe goes well.
func TestUnifiedAccrualOfAPolicy(t *testing.T) {
	r := start(t)
	var bad atomic.Bool
	bad.Store(true)
	var asked atomic.Int64
	app := serveHTTP(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		if bad.Load() {
			w.WriteHeader(http.StatusTooManyRequests)
		}
	}))
	b := balancerOf(web)
	r.policy(detectPolicy(b, httpRule(b), &outpb.FailureAccrual{Kind: &outpb.FailureAccrual_Unified_{Unified: &outpb.FailureAccrual_Unified{
		SuccessRateThreshold: 0.8, MinRequests: 5, Decay: durationpb.New(time.Minute),
		Backoff: &outpb.ExponentialBackoff{MinBackoff: durationpb.New(500 * time.Millisecond), MaxBackoff: durationpb.New(500 * time.Millisecond)},
	}}}))
	r.controls.service(web, plain(app.addr))
	c := r.client()
	for range 5 {
		if res, _ := get(t, c, base+"/"); res.StatusCode != 429 {
			t.Fatalf("got %d", res.StatusCode)
		}
	}
	bad.Store(false)
	began := time.Now()
	if res, _ := get(t, c, base+"/"); res.StatusCode != 200 || time.Since(began) < 200*time.Millisecond {
		t.Errorf("got %d after %v: it was not left alone", res.StatusCode, time.Since(began))
	}
	for range 10 {
		if res, _ := get(t, c, base+"/"); res.StatusCode != 200 {
			t.Errorf("after its probe: %d", res.StatusCode)
		}
	}
	if n := asked.Load(); n != 16 {
		t.Errorf("it was asked %d times, want 16", n)
	}
}

// One address is no set of endpoints: however it fails there is no other to leave it
// for, and its failures reach the client.
func TestAccrualIsOfBalancersOnly(t *testing.T) {
	r := start(t)
	var asked atomic.Int64
	app := serveHTTP(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		w.WriteHeader(500)
	}))
	b := &outpb.Backend{Metadata: serviceMeta("web"), Queue: balancerOf(web).GetQueue(), Kind: &outpb.Backend_Forward{Forward: plain(app.addr)}}
	r.policy(detectPolicy(b, httpRule(b), &outpb.FailureAccrual{Kind: &outpb.FailureAccrual_ConsecutiveFailures_{ConsecutiveFailures: &outpb.FailureAccrual_ConsecutiveFailures{
		MaxFailures: 1, Backoff: &outpb.ExponentialBackoff{MinBackoff: durationpb.New(time.Minute), MaxBackoff: durationpb.New(time.Minute)},
	}}}))
	for range 5 {
		if res, _ := get(t, r.client(), base+"/"); res.StatusCode != 500 {
			t.Errorf("got %d", res.StatusCode)
		}
	}
	if n := asked.Load(); n != 5 {
		t.Errorf("it was asked %d times, want 5", n)
	}
}
