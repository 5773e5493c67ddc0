// Package probe asks another cluster's gateway whether it lives.
//
// One goroutine runs Run; any other may ask Alive or Aim anew. Unknown is not
// dead: a gateway counts as alive until it has failed several times in a row.
package probe

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weftmesh/weft/services/kit/obs"
)

// Target is whom to ask, and how. Without a path or an address nobody is asked.
type Target struct {
	Addresses []netip.Addr
	Path      string
	Port      uint16
	Period    time.Duration
	Timeout   time.Duration // of one answer
	Threshold int           // failures in a row that make it dead
}

func (t Target) usable() bool { return t.Path != "" && len(t.Addresses) > 0 }

func (t Target) equal(o Target) bool {
	same := slices.Equal(t.Addresses, o.Addresses)
	t.Addresses, o.Addresses = nil, nil
	return same && fmt.Sprint(t) == fmt.Sprint(o)
}

// least is the shortest period: a Link may not make us a flood.
const least = time.Second

// Worker asks one gateway again and again.
type Worker struct {
	cluster string
	client  *http.Client
	changed func()

	mu     sync.Mutex
	target Target
	dead   bool
	aimed  chan struct{} // one token: there is another target

	enabled, alive, latency *prometheus.GaugeVec
	took                    *prometheus.HistogramVec
	probes                  *prometheus.CounterVec
}

// New makes a worker. changed is called after the gateway has died or come back,
// and must not block. transport nil means plain HTTP.
func New(cluster string, transport http.RoundTripper, changed func(), reg prometheus.Registerer) *Worker {
	if transport == nil {
		// A connection each: what is asked is whether new ones are answered.
		transport = &http.Transport{DisableKeepAlives: true, MaxResponseHeaderBytes: 64 << 10}
	}
	gauge := func(name, help string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, []string{"target_cluster_name"})
	}
	w := &Worker{
		cluster: cluster, changed: changed, aimed: make(chan struct{}, 1),
		client: &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }},
		// The names are Linkerd's.
		enabled: gauge("gateway_enabled", "1 if the other cluster has a gateway that is asked."),
		alive:   gauge("gateway_alive", "1 while the gateway answers."),
		latency: gauge("gateway_latency", "Milliseconds that the gateway's last answer took."),
		took: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "gateway_probe_latency_ms", Help: "Milliseconds that the gateway's answers took.",
			Buckets: []float64{1, 2, 3, 4, 5, 10, 20, 30, 40, 50, 100, 200, 300, 400, 500, 1000, 2000, 3000, 4000, 5000, 10000, 20000, 30000, 40000, 50000},
		}, []string{"target_cluster_name"}),
		probes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "gateway_probes", Help: "Questions to the gateway; failures count from the one on that makes it dead.",
		}, []string{"target_cluster_name", "probe_successful"}),
	}
	reg.MustRegister(w.enabled, w.alive, w.latency, w.took, w.probes)
	w.enabled.WithLabelValues(cluster)
	return w
}

// Aim changes whom is asked, and how.
func (w *Worker) Aim(t Target) {
	t.Period, t.Threshold = max(t.Period, least), max(t.Threshold, 1)
	if t.Timeout <= 0 {
		t.Timeout = t.Period
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.target.equal(t) {
		return
	}
	w.target = t
	select {
	case w.aimed <- struct{}{}:
	default:
	}
}

// Alive says whether the gateway may be used.
func (w *Worker) Alive() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.dead
}

// Run asks until ctx ends.
func (w *Worker) Run(ctx context.Context) error {
	failed := 0
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-w.aimed:
		case <-timer.C:
		}
		w.mu.Lock()
		t := w.target
		w.mu.Unlock()
		if !t.usable() {
			w.enabled.WithLabelValues(w.cluster).Set(0)
			failed = 0
			w.set(true)
			timer.Stop()
			continue // until there is another target
		}
		w.enabled.WithLabelValues(w.cluster).Set(1)
		begun := time.Now()
		err := w.ask(ctx, t)
		switch {
		case ctx.Err() != nil:
			continue
		case err == nil:
			failed = 0
			ms := float64(time.Since(begun)) / float64(time.Millisecond)
			w.latency.WithLabelValues(w.cluster).Set(ms)
			w.took.WithLabelValues(w.cluster).Observe(ms)
			w.probes.WithLabelValues(w.cluster, "true").Inc()
			w.alive.WithLabelValues(w.cluster).Set(1)
			w.set(true)
		default:
			if failed++; failed >= t.Threshold {
				w.probes.WithLabelValues(w.cluster, "false").Inc()
				w.alive.WithLabelValues(w.cluster).Set(0)
				if w.set(false) {
					slog.Warn("gateway does not answer, its addresses are not ready", obs.Cluster(w.cluster), slog.Int("failures", failed), obs.Error(err))
				}
			}
		}
		// A random part, so that mirrors do not all ask at once.
		timer.Reset(t.Period + rand.N(t.Period/10)) //nolint:gosec // no secret depends on it
	}
}

// set tells whether something is new.
func (w *Worker) set(alive bool) bool {
	w.mu.Lock()
	fresh := w.dead == alive
	w.dead = !alive
	w.mu.Unlock()
	if fresh {
		if alive {
			slog.Info("gateway answers again", obs.Cluster(w.cluster))
		}
		w.changed()
	}
	return fresh
}

// ask wants 200 of one address at least.
func (w *Worker) ask(ctx context.Context, t Target) error {
	ctx, cancel := context.WithTimeout(ctx, t.Timeout)
	defer cancel()
	var last error
	for _, a := range t.Addresses {
		url := "http://" + net.JoinHostPort(a.String(), strconv.Itoa(int(t.Port))) + t.Path
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return fmt.Errorf("asking the gateway: %w", err)
		}
		resp, err := w.client.Do(req)
		if err != nil {
			last = fmt.Errorf("asking the gateway: %w", err)
			continue
		}
		_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 4<<10)) // what it says does not matter
		_ = resp.Body.Close()
		if resp.StatusCode == http.StatusOK {
			return nil
		}
		last = fmt.Errorf("asking the gateway: status %d", resp.StatusCode)
	}
	return last
}
