package hear

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/weftmesh/weft/bus"
	"github.com/weftmesh/weft/bus/bustest"
	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
)

// mesh is a heartbeat and another process on one bus, in virtual time.
type mesh struct {
	hearing *Hearing
	reg     *prometheus.Registry
	other   bus.Transport
	stop    func()
}

func newMesh(t *testing.T) *mesh {
	t.Helper()
	mem := bustest.Memory()
	m := &mesh{reg: prometheus.NewRegistry(), other: mem.Join("local")}
	m.hearing = New(mem.Join("local"), m.reg, nil)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 2)
	go func() { ended <- m.hearing.Run(ctx) }()
	go func() { ended <- m.hearing.Serve(ctx) }()
	m.stop = func() {
		cancel()
		for range 2 {
			if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
				t.Errorf("ended with %v", err)
			}
		}
	}
	synctest.Wait()
	return m
}

func (m *mesh) ask(t *testing.T) []string {
	t.Helper()
	r, err := bus.AskRoll(t.Context(), m.other)
	if err != nil {
		t.Fatalf("AskRoll() = %v", err)
	}
	var got []string
	for _, e := range r.GetEntries() {
		word := e.GetPresence().GetService()
		if e.GetPresence().GetLeaving() {
			word += " leaving"
		}
		got = append(got, word)
	}
	return got
}

func TestHeartbeatAnswersWithWhatItHeard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMesh(t)
		defer m.stop()
		if err := m.hearing.Healthy(); err == nil {
			t.Error("healthy before anything was heard")
		}
		if got := m.ask(t); got != nil {
			t.Errorf("roll = %v before anybody spoke, want it empty", got)
		}

		ctx, leave := context.WithCancel(t.Context())
		self := bus.NewPresence("policy", "dev", "local")
		left := make(chan error, 1)
		go func() { left <- bus.Announce(ctx, m.other, 0, func() *busv1.Presence { return self }) }()
		synctest.Wait()
		if diff := cmp.Diff([]string{"policy"}, m.ask(t)); diff != "" {
			t.Errorf("roll (-want +got):\n%s", diff)
		}
		if err := m.hearing.Healthy(); err != nil {
			t.Errorf("Healthy() = %v", err)
		}

		leave()
		if err := <-left; err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if diff := cmp.Diff([]string{"policy leaving"}, m.ask(t)); diff != "" {
			t.Errorf("roll (-want +got):\n%s", diff)
		}

		<-time.After(deaf)
		if err := m.hearing.Healthy(); err == nil {
			t.Error("healthy though nothing was heard for long")
		}
		<-time.After(2 * time.Minute)
		m.hearing.mu.Lock()
		left2 := len(m.hearing.roll.Entries(time.Now()).GetEntries())
		m.hearing.mu.Unlock()
		if left2 != 0 {
			t.Errorf("%d entries are kept after a farewell though nobody asked", left2)
		}
	})
}

func TestMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMesh(t)
		defer m.stop()
		m.hearing.take(&busv1.Presence{Service: "watcher", Instance: "1", Stale: true})
		m.hearing.take(&busv1.Presence{Service: "nobody's", Instance: "2"})
		m.hearing.take(&busv1.Presence{})
		want := `
			# HELP weft_heartbeat_presences_total Presences heard, by what became of them.
			# TYPE weft_heartbeat_presences_total counter
			weft_heartbeat_presences_total{verdict="crowded"} 0
			weft_heartbeat_presences_total{verdict="late"} 0
			weft_heartbeat_presences_total{verdict="malformed"} 1
			weft_heartbeat_presences_total{verdict="taken"} 2
			# HELP weft_heartbeat_processes Processes on the roll, by service and state.
			# TYPE weft_heartbeat_processes gauge
			weft_heartbeat_processes{service="other",state="leaving"} 0
			weft_heartbeat_processes{service="other",state="live"} 1
			weft_heartbeat_processes{service="other",state="silent"} 0
			weft_heartbeat_processes{service="other",state="stale"} 0
			weft_heartbeat_processes{service="watcher",state="leaving"} 0
			weft_heartbeat_processes{service="watcher",state="live"} 0
			weft_heartbeat_processes{service="watcher",state="silent"} 0
			weft_heartbeat_processes{service="watcher",state="stale"} 1
		`
		if err := testutil.GatherAndCompare(m.reg, strings.NewReader(want), "weft_heartbeat_presences_total", "weft_heartbeat_processes"); err != nil {
			t.Error(err)
		}
	})
}
