package outbound

import (
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	destpb "github.com/linkerd/linkerd2-proxy-api/go/destination"
	typespb "github.com/linkerd/linkerd2-proxy-api/go/http_types"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

func onPath(regex string) *destpb.RequestMatch {
	return &destpb.RequestMatch{Match: &destpb.RequestMatch_Path{Path: &destpb.PathMatch{Regex: regex}}}
}

func failing(low, high uint32) []*destpb.ResponseClass {
	return []*destpb.ResponseClass{{IsFailure: true, Condition: &destpb.ResponseMatch{Match: &destpb.ResponseMatch_Status{Status: &destpb.HttpStatusRange{Min: low, Max: high}}}}}
}

func retryBudget(ratio float32, ttl time.Duration, least uint32) *destpb.RetryBudget {
	return &destpb.RetryBudget{RetryRatio: ratio, Ttl: durationpb.New(ttl), MinRetriesPerSecond: least}
}

// profile gives the service web a ServiceProfile.
func (r *rig) profile(p *destpb.DestinationProfile) {
	p.FullyQualifiedName = "web.shop.svc.cluster.local"
	r.controls.set(func() { r.controls.profiles[web] = p })
}

// flaky fails requests before it serves one.
func flaky(failures int64, with int) (http.Handler, *atomic.Int64) {
	asked := new(atomic.Int64)
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, _ := io.ReadAll(req.Body)
		w.Header().Set("X-Canonical", req.Header.Get("L5d-Dst-Canonical"))
		if asked.Add(1) <= failures {
			w.WriteHeader(with)
			return
		}
		_, _ = w.Write(body)
	}), asked
}

func TestProfileRetries(t *testing.T) {
	for _, tt := range []struct {
		name   string
		p      *destpb.DestinationProfile
		method string
		body   string
		length int64 // -1 is unknown
		want   int
	}{
		{"within the budget", &destpb.DestinationProfile{RetryBudget: retryBudget(0.1, 10*time.Second, 10), Routes: []*destpb.Route{{Condition: onPath("/.*"), IsRetryable: true}}}, "GET", "", 0, 200},
		{"with a body", &destpb.DestinationProfile{RetryBudget: retryBudget(0.1, 10*time.Second, 10), Routes: []*destpb.Route{{Condition: onPath("/.*"), IsRetryable: true}}}, "POST", "hello", 5, 200},
		{"with a body of unknown length", &destpb.DestinationProfile{RetryBudget: retryBudget(0.1, 10*time.Second, 10), Routes: []*destpb.Route{{Condition: onPath("/.*"), IsRetryable: true}}}, "POST", "hello", -1, 200},
		{"with a body that is too large", &destpb.DestinationProfile{RetryBudget: retryBudget(0.1, 10*time.Second, 10), Routes: []*destpb.Route{{Condition: onPath("/.*"), IsRetryable: true}}}, "POST", strings.Repeat("x", 64<<10+1), 64<<10 + 1, 500},
		{"with a stream that is too large", &destpb.DestinationProfile{RetryBudget: retryBudget(0.1, 10*time.Second, 10), Routes: []*destpb.Route{{Condition: onPath("/.*"), IsRetryable: true}}}, "POST", strings.Repeat("x", 100<<10), -1, 500},
		{"without a budget", &destpb.DestinationProfile{Routes: []*destpb.Route{{Condition: onPath("/.*"), IsRetryable: true}}}, "GET", "", 0, 500},
		{"a budget of nonsense", &destpb.DestinationProfile{RetryBudget: retryBudget(0.1, time.Hour, 10), Routes: []*destpb.Route{{Condition: onPath("/.*"), IsRetryable: true}}}, "GET", "", 0, 500},
		{"below any ratio", &destpb.DestinationProfile{RetryBudget: retryBudget(-1, 10*time.Second, 10), Routes: []*destpb.Route{{Condition: onPath("/.*"), IsRetryable: true}}}, "GET", "", 0, 500},
		{"not retryable", &destpb.DestinationProfile{RetryBudget: retryBudget(0.1, 10*time.Second, 10), Routes: []*destpb.Route{{Condition: onPath("/.*")}}}, "GET", "", 0, 500},
		{"another route", &destpb.DestinationProfile{RetryBudget: retryBudget(0.1, 10*time.Second, 10), Routes: []*destpb.Route{{Condition: onPath("/other"), IsRetryable: true}}}, "GET", "", 0, 500},
		{"no failure by its class", &destpb.DestinationProfile{RetryBudget: retryBudget(0.1, 10*time.Second, 10), Routes: []*destpb.Route{{Condition: onPath("/.*"), IsRetryable: true, ResponseClasses: []*destpb.ResponseClass{
			{Condition: &destpb.ResponseMatch{Match: &destpb.ResponseMatch_Status{Status: &destpb.HttpStatusRange{Min: 500, Max: 500}}}},
		}}}}, "GET", "", 0, 500},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := start(t)
			h, asked := flaky(2, 500)
			r.controls.service(web, plain(serveHTTP(t, h).addr))
			r.profile(tt.p)
			req, _ := http.NewRequestWithContext(t.Context(), tt.method, base+"/a", strings.NewReader(tt.body))
			req.ContentLength = tt.length
			if tt.body == "" {
				req.Body = http.NoBody
			}
			res, body := do(t, r.client(), req)
			if res.StatusCode != tt.want || tt.want == 200 && body != tt.body {
				t.Errorf("got %d, %d bytes, after %d tries; want %d", res.StatusCode, len(body), asked.Load(), tt.want)
			}
			if got := res.Header.Get("X-Canonical"); got != web {
				t.Errorf("the server was told %q, want %s", got, web)
			}
		})
	}
}

func TestProfileBudgetRunsOut(t *testing.T) {
	r := start(t)
	h, asked := flaky(1<<40, 503)
	r.controls.service(web, plain(serveHTTP(t, h).addr))
	r.profile(&destpb.DestinationProfile{RetryBudget: retryBudget(0.5, time.Minute, 0), Routes: []*destpb.Route{
		{Condition: onPath("/.*"), IsRetryable: true, MetricsLabels: map[string]string{"route": "all"}},
	}})
	c := r.client()
	for range 20 {
		if res, _ := get(t, c, base+"/a"); res.StatusCode != 503 {
			t.Fatalf("got %d", res.StatusCode)
		}
	}
	if n := asked.Load(); n != 30 {
		t.Errorf("20 requests at a ratio of a half made %d, want 30", n)
	}
	l := map[string]string{"rt_route": "all", "direction": "outbound", "dst": web}
	if all, tries, broke := r.series("route_request_total", l), r.series("route_actual_request_total", l), r.series("route_retryable_total", l); all != 20 || tries != 30 || broke == 0 {
		t.Errorf("counted %v requests, %v tries, %v without a budget", all, tries, broke)
	}
	l["classification"], l["status_code"] = "failure", "503"
	eventually(t, "all failures to be counted", func() bool { return r.series("route_response_total", l) == 20 }) // the last is, behind its answer
}

func TestProfileTimeout(t *testing.T) {
	r := start(t)
	app := serveHTTP(t, http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) { <-req.Context().Done() }))
	r.controls.service(web, plain(app.addr))
	r.profile(&destpb.DestinationProfile{Routes: []*destpb.Route{{
		Condition: &destpb.RequestMatch{Match: &destpb.RequestMatch_Method{Method: &typespb.HttpMethod{Type: &typespb.HttpMethod_Registered_{Registered: typespb.HttpMethod_GET}}}},
		Timeout:   durationpb.New(50 * time.Millisecond),
	}}})
	if res, _ := get(t, r.client(), base+"/a"); res.StatusCode != 504 || !res.Close {
		t.Errorf("got %d, closed %v; want 504 and a closed connection", res.StatusCode, res.Close)
	}
}

// gRPC answers over HTTP/2 whose failure is in the header, in trailers alone, or
// in trailers behind a message.
func TestProfileRetriesOfGRPC(t *testing.T) {
	for _, tt := range []struct {
		name  string
		where string
	}{{"in the head", "head"}, {"in trailers alone", "trailers"}, {"in trailers behind a message", "behind"}} {
		t.Run(tt.name, func(t *testing.T) {
			r := start(t)
			var asked atomic.Int64
			app := serveHTTP(t, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
				_, _ = io.ReadAll(req.Body)
				w.Header().Set("Content-Type", "application/grpc")
				status := "0"
				if asked.Add(1) <= 2 {
					status = "14"
				}
				if status == "14" && tt.where == "head" {
					w.Header().Set("Grpc-Status", status)
					return
				}
				w.Header().Set("Trailer", "Grpc-Status")
				if status == "0" || tt.where == "behind" {
					_, _ = w.Write([]byte{0, 0, 0, 0, 3, 0x0a, 1, 'x'})
				} else {
					w.WriteHeader(200)
					w.(http.Flusher).Flush()
				}
				w.Header().Set("Grpc-Status", status)
			}))
			r.controls.service(web, plain(app.addr))
			r.profile(&destpb.DestinationProfile{RetryBudget: retryBudget(0.1, 10*time.Second, 10), Routes: []*destpb.Route{{Condition: onPath("/.*"), IsRetryable: true}}})
			out := new(wrapperspb.StringValue)
			err := r.grpc(web).Invoke(t.Context(), "/test.Echo/Unary", wrapperspb.String("q"), out)
			if tt.where == "behind" {
				// Whether the trailers have come with the message is the network's doing.
				if c := status.Code(err); c != codes.OK && c != codes.Unavailable {
					t.Errorf("got %v", err)
				}
				return
			}
			if err != nil || out.GetValue() != "x" || asked.Load() != 3 {
				t.Errorf("got %q, %v after %d tries", out.GetValue(), err, asked.Load())
			}
		})
	}
}

// Failures that are tried again give back what they took of the connection's
// window: 65,535 bytes would be gone soon.
func TestRetriedAnswersCostNoWindow(t *testing.T) {
	r := start(t)
	var asked atomic.Int64
	large := strings.Repeat("e", 32<<10)
	app := serveHTTP(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if asked.Add(1)%2 == 1 {
			w.WriteHeader(503)
			_, _ = io.WriteString(w, large)
			return
		}
		_, _ = io.WriteString(w, "ok")
	}))
	r.controls.service(web, hintedH2(app.addr))
	r.profile(&destpb.DestinationProfile{RetryBudget: retryBudget(1, 10*time.Second, 100), Routes: []*destpb.Route{{Condition: onPath("/.*"), IsRetryable: true, ResponseClasses: failing(500, 599)}}})
	c := r.client()
	for i := range 100 {
		if res, body := get(t, c, base+"/"); res.StatusCode != 200 || body != "ok" {
			t.Fatalf("request %d: %d", i, res.StatusCode)
		}
	}
}

// dst_overrides come and go; without any the service itself is used.
func TestProfileOverrides(t *testing.T) {
	r := start(t)
	const other, third = "other.shop.svc.cluster.local:80", "third.shop.svc.cluster.local:80"
	r.controls.service(web, plain(serveHTTP(t, echo("web")).addr))
	r.controls.service(other, plain(serveHTTP(t, echo("other")).addr))
	r.controls.service(third, plain(serveHTTP(t, echo("third")).addr))
	c := r.client()
	from := func() string { res, _ := get(t, c, base+"/"); return res.Header.Get("X-From") }
	over := func(weights map[string]uint32) *destpb.DestinationProfile {
		p := &destpb.DestinationProfile{}
		for _, name := range []string{web, other, third} {
			if w, ok := weights[name]; ok {
				p.DstOverrides = append(p.DstOverrides, &destpb.WeightedDst{Authority: name, Weight: w})
			}
		}
		return p
	}
	r.profile(over(nil))
	if got := from(); got != "web" {
		t.Fatalf("from %s, want web", got)
	}
	r.profile(over(map[string]uint32{other: 10}))
	eventually(t, "an override takes all", func() bool { return from() == "other" })
	r.profile(over(map[string]uint32{other: 1, third: 9}))
	eventually(t, "there are two", func() bool { return from() == "third" })
	count := map[string]int{}
	for range 400 {
		count[from()]++
	}
	if count["web"] != 0 || count["other"] < 10 || count["other"] > 90 {
		t.Errorf("of 400 at 1 to 9: %v", count)
	}
	r.profile(over(map[string]uint32{other: 0, third: 5}))
	eventually(t, "a weight of nothing gets nothing", func() bool {
		for range 20 {
			if from() != "third" {
				return false
			}
		}
		return true
	})
	r.profile(over(map[string]uint32{other: 0, third: 0}))
	eventually(t, "all at nothing is the service", func() bool { return from() == "web" })
	r.profile(over(map[string]uint32{other: 1}))
	eventually(t, "again", func() bool { return from() == "other" })
	r.profile(over(nil))
	eventually(t, "gone again", func() bool { return from() == "web" })
}
