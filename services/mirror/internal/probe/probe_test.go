package probe_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/weftmesh/weft/services/mirror/internal/probe"
)

// gateway answers as it is set.
type gateway struct {
	mu    sync.Mutex
	code  int // 0 is no answer
	asked []string
}

func (g *gateway) RoundTrip(r *http.Request) (*http.Response, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.asked = append(g.asked, r.URL.String())
	if g.code == 0 {
		return nil, errors.New("connection refused")
	}
	return &http.Response{StatusCode: g.code, Body: io.NopCloser(strings.NewReader("ok")), Header: http.Header{}, Request: r}, nil
}

func (g *gateway) answer(code int) { g.mu.Lock(); defer g.mu.Unlock(); g.code, g.asked = code, nil }

func (g *gateway) count() int { g.mu.Lock(); defer g.mu.Unlock(); return len(g.asked) }

func pass(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	<-timer.C
	synctest.Wait()
}

// A gateway's life: alive until it has failed three times, also from the start;
// one answer brings it back; without a target nobody is asked.
func TestWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &gateway{}
		changes := make(chan struct{}, 100)
		reg := prometheus.NewPedanticRegistry()
		w := probe.New("east", g, func() { changes <- struct{}{} }, reg)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- w.Run(ctx) }()
		defer func() { cancel(); <-done }()
		see := func(when string, alive bool, told int) {
			t.Helper()
			if w.Alive() != alive || len(changes) != told {
				t.Errorf("%s: alive %v, told %d times; want %v, %d", when, w.Alive(), len(changes), alive, told)
			}
		}
		pass(time.Hour)
		see("no target", true, 0)
		target := probe.Target{
			Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")},
			Path:      "/ready", Port: 4191, Period: 3 * time.Second, Timeout: 30 * time.Second, Threshold: 3,
		}
		w.Aim(target)
		pass(5 * time.Second)
		see("two failures", true, 0)
		pass(3 * time.Second)
		see("three", false, 1)
		pass(time.Minute)
		see("more", false, 1)
		if diff := cmp.Diff([]string{"http://192.0.2.1:4191/ready", "http://[2001:db8::1]:4191/ready"}, g.asked[:2]); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		g.answer(http.StatusServiceUnavailable)
		pass(time.Minute)
		see("not ready", false, 1)
		g.answer(http.StatusOK)
		w.Aim(target) // the same: no question of its own
		pass(4 * time.Second)
		see("back", true, 2)
		if n := g.count(); n > 2 { // each period and its random part
			t.Errorf("%d questions in 4 s, want 2 at most", n)
		}
		want := `
# HELP gateway_alive 1 while the gateway answers.
# TYPE gateway_alive gauge
gateway_alive{target_cluster_name="east"} 1
# HELP gateway_enabled 1 if the other cluster has a gateway that is asked.
# TYPE gateway_enabled gauge
gateway_enabled{target_cluster_name="east"} 1
`
		if err := testutil.GatherAndCompare(reg, strings.NewReader(want), "gateway_alive", "gateway_enabled"); err != nil {
			t.Error(err)
		}
		g.answer(0)
		pass(time.Minute)
		see("dead again", false, 3)
		w.Aim(probe.Target{})
		pass(time.Second)
		see("nobody to ask", true, 4)
		g.answer(http.StatusOK)
		pass(time.Hour)
		if n := g.count(); n != 0 {
			t.Errorf("%d questions without a target", n)
		}
	})
}

// The wire: a redirect is no answer, a slow gateway none either.
func TestWire(t *testing.T) {
	hang := make(chan struct{})
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/ready":
		case "/slow":
			<-hang
		default:
			http.Redirect(w, r, "/ready", http.StatusFound)
		}
	}))
	defer web.Close()
	defer close(hang)
	addr := netip.MustParseAddrPort(web.Listener.Addr().String())
	for path, want := range map[string]bool{"/ready": true, "/else": false, "/slow": false} {
		ctx, cancel := context.WithCancel(t.Context())
		dead := make(chan struct{}, 8)
		reg := prometheus.NewPedanticRegistry()
		w := probe.New("east", nil, func() { dead <- struct{}{} }, reg)
		w.Aim(probe.Target{Addresses: []netip.Addr{addr.Addr()}, Port: addr.Port(), Path: path, Timeout: time.Second})
		done := make(chan error, 1)
		go func() { done <- w.Run(ctx) }()
		if !want {
			<-dead
		} else {
			tick := time.NewTicker(10 * time.Millisecond)
			for testutil.CollectAndCount(reg, "gateway_latency") == 0 { // the test's own time bounds it
				<-tick.C
			}
			tick.Stop()
		}
		if w.Alive() != want {
			t.Errorf("%s: alive %v", path, w.Alive())
		}
		cancel()
		<-done
	}
}
