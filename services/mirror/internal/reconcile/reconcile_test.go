package reconcile_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
	"github.com/weftmesh/weft/services/mirror/internal/derive"
	"github.com/weftmesh/weft/services/mirror/internal/link"
	"github.com/weftmesh/weft/services/mirror/internal/reconcile"
)

// there is the other cluster, as a test sets it.
type there struct {
	mu      sync.Mutex
	tables  derive.Tables
	known   bool
	changed chan struct{}
}

func newThere() *there { return &there{changed: make(chan struct{}, 1)} }

func (f *there) Tables() (derive.Tables, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.tables, f.known
}

func (f *there) Changed() <-chan struct{} { return f.changed }

// export makes these the exported services.
func (f *there) export(names ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.known, f.tables = true, derive.Tables{}
	for _, n := range names {
		f.tables.Services = append(f.tables.Services, &busv1.Service{
			Namespace: "pottery", Name: n, Ports: []*busv1.ServicePort{{Port: 80}},
			Labels: map[string]string{derive.LabelExported: "true", derive.LabelFederated: "member"},
		})
	}
	select {
	case f.changed <- struct{}{}:
	default:
	}
}

// here remembers what it was told and fails as often as it is asked to.
type here struct {
	mu      sync.Mutex
	fail    int
	rounds  []int // number of copies wanted in each round
	joined  []int // number of members
	joinErr error
	at      []time.Duration
	begun   time.Time
}

var errDown = errors.New("the sink is down")

func (s *here) Join(_ context.Context, want []derive.Member) (reconcile.Done, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.joined = append(s.joined, len(want))
	return reconcile.Done{}, s.joinErr
}

func (s *here) Apply(_ context.Context, want []derive.Mirror) (reconcile.Done, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rounds = append(s.rounds, len(want))
	s.at = append(s.at, time.Since(s.begun))
	if s.fail > 0 {
		s.fail--
		return reconcile.Done{}, errDown
	}
	return reconcile.Done{Created: len(want)}, nil
}

func (s *here) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.rounds)
}

func (s *here) last() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rounds[len(s.rounds)-1]
}

type way struct {
	err   error
	local bool // no other cluster
}

func (l way) Link(context.Context) (derive.Link, error) {
	if l.local {
		return derive.Link{}, l.err
	}
	return derive.Link{Cluster: "east", Domain: "cluster.local"}, l.err
}

func (way) Report(context.Context, link.Outcome) error { return nil }

// run starts a loop; the returned function ends it.
func run(t *testing.T, f *there, l way, s *here) func() {
	t.Helper()
	s.begun = time.Now()
	loop := reconcile.New(f, l, s, reconcile.Config{}, prometheus.NewPedanticRegistry())
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- loop.Run(ctx) }()
	return func() {
		cancel()
		if err := <-done; err == nil {
			t.Error("Run() after the end = nil")
		}
	}
}

// pass lets virtual time pass.
func pass(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	<-timer.C
	synctest.Wait()
}

// Unknown is not empty: nothing is written, and so nothing deleted, before the
// other cluster has been heard.
func TestNothingIsDoneWhileUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, s := newThere(), &here{}
		stop := run(t, f, way{}, s)
		pass(10 * time.Minute)
		if n := s.count(); n != 0 {
			t.Errorf("%d rounds were written, want none", n)
		}
		f.export("kiln")
		pass(time.Second)
		if n := s.count(); n != 1 || s.last() != 1 {
			t.Errorf("%d rounds, the last of %d copies, want 1 of 1", n, s.last())
		}
		f.export() // known to be empty: now the copies go
		pass(time.Second)
		if s.last() != 0 {
			t.Errorf("%d copies are wanted, want none", s.last())
		}
		stop()
	})
}

func TestABurstIsOneRound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, s := newThere(), &here{}
		f.export("kiln")
		stop := run(t, f, way{}, s)
		pass(time.Second)
		before := s.count()
		for range 20 {
			f.export("kiln", "wheel")
			pass(time.Millisecond)
		}
		pass(time.Second)
		if n := s.count() - before; n > 2 {
			t.Errorf("%d rounds for one burst, want 2 at most", n)
		}
		stop()
	})
}

// Retries are few and grow apart; then a change, or the next regular round,
// is waited for.
func TestRetriesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, s := newThere(), &here{fail: 1000}
		f.export("kiln")
		<-f.changed
		stop := run(t, f, way{}, s)
		pass(25 * time.Second)
		if n := s.count(); n < 5 || n > 6 {
			t.Errorf("%d rounds in the first 25 s, want the first and 4 or 5 retries (at %v)", n, s.at)
		}
		pass(10 * time.Minute)
		if n := s.count(); n > 6+21 {
			t.Errorf("%d rounds in 10 minutes: one in 30 s was enough", n)
		}
		s.mu.Lock()
		s.fail = 0
		s.mu.Unlock()
		before := s.count()
		f.export("kiln")
		pass(time.Second)
		if s.count() == before {
			t.Error("a change after the failures was not looked at")
		}
		stop()
	})
}

// A gateway's name that cannot be resolved leaves the copies as they are.
func TestUnknownGatewayWritesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, s := newThere(), &here{}
		f.export("kiln")
		stop := run(t, f, way{err: errors.New("no such host")}, s)
		pass(time.Minute)
		if n := s.count(); n != 0 {
			t.Errorf("%d rounds were written, want none", n)
		}
		stop()
	})
}

// A cluster has no copies of its own services; it joins federated ones. A
// failure is tried again.
func TestLocalMembers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, s := newThere(), &here{joinErr: errDown}
		f.export("kiln", "wheel")
		<-f.changed
		stop := run(t, f, way{local: true}, s)
		pass(20 * time.Second)
		s.mu.Lock()
		if len(s.rounds) > 0 || len(s.joined) < 5 || s.joined[0] != 2 {
			t.Errorf("copies in %v, members in %v", s.rounds, s.joined)
		}
		s.mu.Unlock()
		stop()
	})
}
