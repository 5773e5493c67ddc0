package ask

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weftmesh/weft/bus"
	"github.com/weftmesh/weft/bus/bustest"
	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
	"github.com/weftmesh/weft/services/kit/say"
)

func names(r *busv1.Roll) []string {
	var all []string
	for _, e := range r.GetEntries() {
		all = append(all, e.GetPresence().GetService())
	}
	slices.Sort(all)
	return all
}

// announce lets a process speak until the returned function is called.
func announce(t *testing.T, tr bus.Transport, service string) func() {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	p := bus.NewPresence(service, "dev", "local")
	done := make(chan error, 1)
	go func() { done <- bus.Announce(ctx, tr, 0, func() *busv1.Presence { return p }) }()
	return func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

func TestRollFromHeartbeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := bustest.Memory()
		ctx, cancel := context.WithCancel(t.Context())
		served := make(chan error, 1)
		want := &busv1.Roll{Entries: []*busv1.RollEntry{{Presence: &busv1.Presence{Service: "policy"}}}}
		heartbeat, self := mem.Join("local"), mem.Join("local")
		go func() { served <- bus.ServeRoll(ctx, heartbeat, func() *busv1.Roll { return want }) }()
		synctest.Wait()
		got, err := rollFrom(ctx, self, Config{}, func(time.Duration) { t.Error("it listened though heartbeat answers") })
		if err != nil || got.Heard || got.Cluster != "local" {
			t.Errorf("rollFrom() = %+v, %v, want heartbeat's answer", got, err)
		}
		if diff := cmp.Diff([]string{"policy"}, names(got.Roll)); diff != "" {
			t.Errorf("roll (-want +got):\n%s", diff)
		}
		cancel()
		<-served
	})
}

func TestRollHeardHere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := bustest.Memory()
		begin := time.Now()
		// Both began to speak before the command listens: only their next words are heard.
		defer announce(t, mem.Join("local"), "policy")()
		defer announce(t, mem.Join("local"), "watcher")()
		synctest.Wait()
		var told time.Duration
		got, err := rollFrom(t.Context(), mem.Join("local"), Config{}, func(d time.Duration) { told = d })
		if err != nil || !got.Heard {
			t.Errorf("rollFrom() = %+v, %v, want what was heard", got, err)
		}
		if diff := cmp.Diff([]string{"policy", "watcher"}, names(got.Roll)); diff != "" {
			t.Errorf("roll (-want +got):\n%s", diff)
		}
		if took := time.Since(begin); took != defaultHear || told != defaultHear {
			t.Errorf("listened for %s and told %s, want %s", took, told, defaultHear)
		}
	})
}

func TestRollGivesUpWhenAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := rollFrom(ctx, bustest.Memory().Join("local"), Config{}, func(time.Duration) {})
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("rollFrom() = %v, want the end of the context", err)
		}
	})
}

func TestRollExplainsAnAbsentBus(t *testing.T) {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := lis.Addr().String()
	if err := lis.Close(); err != nil {
		t.Fatal(err)
	}
	_, err = Roll(t.Context(), Config{Bus: bus.Config{Servers: []string{"nats://" + addr}}, Wait: 100 * time.Millisecond}, func(time.Duration) {})
	var p *say.Problem
	if !errors.As(err, &p) || p.What != "no bus answers" || p.Why != "nats://"+addr+": nothing listens there" {
		t.Errorf("Roll() = %+v (%v), want it explained", p, err)
	}
}

func TestProblem(t *testing.T) {
	timeout := &net.OpError{Op: "dial", Err: context.DeadlineExceeded}
	refused := fmt.Errorf("knocking: %w", syscall.ECONNREFUSED)
	const start = "start the mesh (`weft demo` runs a small one), or name its bus with --bus.servers or WEFT_BUS_SERVERS"
	tests := []struct {
		name      string
		found     []finding
		why, next string
	}{
		{"refused", []finding{{"nats://a:4222", refused}}, "nats://a:4222: nothing listens there", start},
		{
			"unknown and slow, a password among them",
			[]finding{{"tls://u:secret@b", &net.DNSError{Name: "b"}}, {"nats://c", timeout}},
			"tls://u:xxxxx@b: the name \"b\" is not known\nnats://c: nothing answered within 1s", start,
		},
		{
			"another server is there",
			[]finding{{"nats://a", refused}, {"nats://b", nil}},
			"nats://a: nothing listens there\nnats://b: something listens there, but does not let us in as a client of NATS",
			"check --bus.credentials, --bus.ca, --bus.cert and --bus.key, and whether that is a NATS server; -v shows what the connection says",
		},
		{"anything else", []finding{{"nats://a", errors.New("odd")}}, "nats://a: odd", start},
		{"no url", []finding{{":%", errors.New("odd")}}, "a server whose URL cannot be read: odd", start},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := problem(tt.found, nil)
			if diff := cmp.Diff([]string{tt.why, tt.next}, []string{p.Why, p.Next}); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
