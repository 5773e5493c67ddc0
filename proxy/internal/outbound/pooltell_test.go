package outbound

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weftmesh/weft/proxy/internal/resolve"
	"github.com/weftmesh/weft/proxy/internal/tell"
)

func TestBalancerIsTold(t *testing.T) {
	app := serveHTTP(t, echo("a"))
	type line struct {
		family, label, value string
		want                 float64
	}
	for _, tt := range []struct {
		name  string
		empty bool
		want  []line
	}{
		{"one endpoint", false, []line{
			{"p2c_endpoints", "", "", 1},
			{"p2c_updates_total", "op", "Reset", 1},
			{"endpoints", "endpoint_state", "ready", 1},
			{"endpoints", "endpoint_state", "pending", 0},
			{"p2c_updates_total", "op", "DoesNotExist", 0},
			{"queue_length", "", "", 0},
			{"queue_requests_total", "", "", 1},
			{"queue_latency_seconds", "", "", 1},
			{"queue_gate_open_total", "", "", 1},
			{"queue_gate_shut_total", "", "", 0},
			{"queue_gate_shut_time_seconds", "", "", 0},
			{"queue_gate_timeout_seconds", "", "", failfast.Seconds()},
		}},
		{"none", true, []line{
			{"p2c_endpoints", "", "", 0},
			{"queue_requests_total", "", "", 1},
			{"queue_latency_seconds", "", "", 1},
			{"queue_gate_shut_total", "", "", 1},
			{"queue_gate_open_time_seconds", "", "", 0},
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := start(t)
			if tt.empty {
				r.controls.service(web)
			} else {
				r.controls.service(web, plain(app.addr))
			}
			req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://web.shop.svc.cluster.local/", nil)
			do(t, r.client(), req)
			const prefix = "outbound_http_balancer_"
			for _, l := range tt.want {
				labels := map[string]string{"backend_name": "web", "backend_kind": "Service", "parent_kind": "Service", "parent_name": "web"}
				if l.label != "" {
					labels[l.label] = l.value
				}
				if got := r.series(prefix+l.family, labels); l.family != "queue_requests_total" && l.family != "queue_latency_seconds" && got != l.want || got < l.want {
					t.Errorf("%s%s%v = %v, want %v", prefix, l.family, labels, got, l.want)
				}
			}
			since := map[bool]string{false: "queue_gate_open_time_seconds", true: "queue_gate_shut_time_seconds"}[tt.empty]
			if r.series(prefix+since, nil) == 0 {
				t.Errorf("%s is 0", since)
			}
		})
	}
}

// TestUpdatesBeforeTheFirstRequest: discovery may answer before a request has said
// what the pool is for.
func TestUpdatesBeforeTheFirstRequest(t *testing.T) {
	r := &rig{t: t, registry: prometheus.NewRegistry()}
	m := tell.New(tell.Config{})
	r.registry.MustRegister(m)
	p := newPoolTell(m, resolve.Backend{Ref: resolve.Ref{Kind: "Service", Name: "web"}})
	p.updated(resolve.OpReset)
	p.user(forHTTP, resolve.Ref{Name: "a"})
	p.updated(resolve.OpAdd)
	p.user(forTCP, resolve.Ref{Name: "a"})
	p.user(forHTTP, resolve.Ref{Name: "a"})
	for _, family := range []string{"outbound_http_balancer_p2c_updates_total", "outbound_tcp_balancer_p2c_updates_total"} {
		for _, op := range []resolve.Op{resolve.OpReset, resolve.OpAdd} {
			if got := r.series(family, map[string]string{"op": string(op), "parent_name": "a", "backend_name": "web"}); got != 1 {
				t.Errorf("%s: %v of %s, want 1", family, got, op)
			}
		}
	}
}

// TestEveryRequestAsksItsPool: queue_requests_total counts those that need not wait,
// too, without costing them anything.
func TestEveryRequestAsksItsPool(t *testing.T) {
	r := &rig{t: t, registry: prometheus.NewRegistry()}
	m := tell.New(tell.Config{})
	r.registry.MustRegister(m)
	p := newPoolTell(m, resolve.Backend{Ref: resolve.Ref{Kind: "Service", Name: "web"}})
	asked := m.Counter(tell.OutboundHTTPBackendRequests, nil)
	asked.Add(5) // of a pool of before
	u := p.user(forHTTP, resolve.Ref{Name: "a"})
	u.counts(asked)
	u.counts(m.Counter(tell.OutboundHTTPBackendRequests, nil)) // the same
	requests := func() float64 { u.settle(); return r.series("outbound_http_balancer_queue_requests_total", nil) }
	if got := requests(); got != 0 {
		t.Errorf("%v before any request", got)
	}
	asked.Add(3)
	if got := requests(); got != 3 {
		t.Errorf("%v, want 3", got)
	}
	asked.Inc()
	p.waited(2 * time.Second)
	asked.Inc()
	u.direct.Add(1)
	if got, waits := requests(), r.series("outbound_http_balancer_queue_latency_seconds", nil); got != 6 || waits != 6 {
		t.Errorf("%v, of which %v have a time; want 6", got, waits)
	}
	for i := range maxUsers + 10 {
		if by := p.user(forTCP, resolve.Ref{Name: fmt.Sprint(i)}); (by == nil) != (i >= maxUsers-1) {
			t.Fatalf("user %d: %v", i, by)
		}
	}
}
