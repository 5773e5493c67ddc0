package kube

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// court is an API server that holds one lease, by the rules of a real one.
type court struct {
	mu      sync.Mutex
	lease   *coordinationv1.Lease
	version int
	writes  int
}

// line is one candidate's connection to it. All of its requests fail with err,
// or hang while hung is set.
type line struct {
	*court
	err   error
	hung  chan struct{}
	after func() // runs once, when the next write was done but not yet answered
}

var leaseResource = schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}

func (l *line) begin(ctx context.Context) error {
	l.mu.Lock()
	hung, err := l.hung, l.err
	l.mu.Unlock()
	if hung != nil {
		select {
		case <-hung:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return err
}

func (l *line) Get(ctx context.Context, name string, _ metav1.GetOptions) (*coordinationv1.Lease, error) {
	if err := l.begin(ctx); err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lease == nil {
		return nil, apierrors.NewNotFound(leaseResource, name)
	}
	return l.lease.DeepCopy(), nil
}

func (l *line) Create(ctx context.Context, in *coordinationv1.Lease, _ metav1.CreateOptions) (*coordinationv1.Lease, error) {
	return l.put(ctx, in, func() error {
		if l.lease != nil {
			return apierrors.NewAlreadyExists(leaseResource, in.Name)
		}
		in.UID = types.UID(strconv.Itoa(l.version))
		return nil
	})
}

func (l *line) Update(ctx context.Context, in *coordinationv1.Lease, _ metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	return l.put(ctx, in, func() error {
		if l.lease == nil {
			return apierrors.NewNotFound(leaseResource, in.Name)
		}
		if in.ResourceVersion != l.lease.ResourceVersion {
			return apierrors.NewConflict(leaseResource, in.Name, errors.New("the object has been modified"))
		}
		return nil
	})
}

func (l *line) put(ctx context.Context, in *coordinationv1.Lease, allowed func() error) (*coordinationv1.Lease, error) {
	if err := l.begin(ctx); err != nil {
		return nil, err
	}
	l.mu.Lock()
	in = in.DeepCopy()
	err := allowed()
	after := l.after
	if err == nil {
		l.store(in)
		l.after = nil
	}
	l.mu.Unlock()
	if err != nil {
		return nil, err
	}
	if after != nil {
		after()
		return nil, l.begin(ctx)
	}
	return in.DeepCopy(), nil
}

func (c *court) store(l *coordinationv1.Lease) {
	c.version++
	c.writes++
	if l != nil {
		l.ResourceVersion = strconv.Itoa(c.version)
	}
	c.lease = l
}

// edit changes the lease as kubectl would.
func (c *court) edit(change func(*coordinationv1.Lease) *coordinationv1.Lease) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lease != nil {
		c.store(change(c.lease.DeepCopy()))
	}
}

func (l *line) fail(err error) { l.mu.Lock(); defer l.mu.Unlock(); l.err = err }

func (l *line) hang() { l.mu.Lock(); defer l.mu.Unlock(); l.hung = make(chan struct{}) }

func (l *line) resume() { l.mu.Lock(); defer l.mu.Unlock(); close(l.hung); l.hung = nil }

// stand runs a candidate with client-go's times and a wall clock of its own.
func stand(t *testing.T, c *court, name string, skew time.Duration) (*candidate, *line) {
	t.Helper()
	api := &line{court: c}
	e := &elector{
		Election: Election{Namespace: "linkerd", Identity: name}.withDefaults(),
		leases:   api,
		wall:     func() time.Time { return time.Now().Add(skew) },
		log:      slog.New(slog.DiscardHandler),
	}
	ctx, cancel := context.WithCancel(t.Context())
	x := &candidate{cancel: cancel, done: make(chan error, 1)}
	go func() {
		e.run(ctx, func(ctx context.Context, check func() error) {
			x.check.Store(&check)
			x.terms.Add(1)
			x.leading.Store(true)
			<-ctx.Done()
			x.leading.Store(false)
		})
		x.done <- nil
	}()
	t.Cleanup(func() { x.stop(t) })
	return x, api
}

// may tells whether the candidate would write now.
func (x *candidate) may() bool {
	check := x.check.Load()
	return check != nil && (*check)() == nil
}

func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// watchFor lets time pass, and asks every tenth of a second that at most one may
// write. It gives the time after which done was true, or d.
func watchFor(t *testing.T, d time.Duration, done func() bool, all ...*candidate) time.Duration {
	t.Helper()
	const step = 100 * time.Millisecond
	for at := time.Duration(0); at < d; at += step {
		synctest.Wait()
		n := 0
		for _, x := range all {
			if x.may() {
				n++
			}
		}
		if n > 1 {
			t.Fatalf("%d candidates may write after %v", n, at)
		}
		if done() {
			return at
		}
		pass(step)
	}
	return d
}

func never() bool { return false }

// takeover is when another leads after a leader was cut off, counted from ago after
// its last renewal or up to one wait between renewals more. The other one sees that
// renewal a look late, and its end another look late; watchFor adds its step.
func takeover(ago time.Duration) (soonest, latest time.Duration) {
	e := Election{}.withDefaults()
	look := e.Retry + time.Duration(jitter*float64(e.Retry))
	return e.Lease - e.Retry - ago, e.Lease + 2*look + 200*time.Millisecond - ago
}

func TestTwoCandidates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := new(court)
		a, _ := stand(t, c, "a", 0)
		b, _ := stand(t, c, "b", 0)
		watchFor(t, time.Hour, never, a, b)
		if n := a.terms.Load() + b.terms.Load(); n != 1 {
			t.Fatalf("%d terms in an hour, want 1", n)
		}
		if !a.may() {
			a, b = b, a
		}
		a.stop(t)
		// Released: no wait for the end of the lease, only for b's next look.
		if took := watchFor(t, time.Minute, b.may, a, b); took > 5*time.Second {
			t.Errorf("b leads after %v", took)
		}
		if got := *c.lease.Spec.LeaseTransitions; got != 1 {
			t.Errorf("%d transitions, want 1", got)
		}
	})
}

// TestPausedLeader: a leader that hears nothing, as one that was stopped, may
// not write from the renew deadline on, which is before anybody else may.
func TestPausedLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := new(court)
		a, api := stand(t, c, "a", 0)
		pass(time.Second)
		b, _ := stand(t, c, "b", 0)
		pass(time.Minute)
		api.hang()
		first := *a.check.Load()
		if lost := watchFor(t, time.Minute, func() bool { return !a.may() }, a, b); lost < 7*time.Second || lost > 10200*time.Millisecond {
			t.Errorf("a may write for %v without a renewal, want 8 to 10 s", lost)
		}
		soonest, latest := takeover(10 * time.Second)
		if took := watchFor(t, time.Minute, b.may, a, b); took < soonest || took > latest {
			t.Errorf("b leads %v later, want %v to %v", took, soonest, latest)
		}
		if a.leading.Load() {
			t.Error("a leads without a lease")
		}
		api.resume()
		watchFor(t, time.Minute, never, a, b)
		b.stop(t)
		if took := watchFor(t, time.Minute, a.may, a, b); took > 5*time.Second {
			t.Errorf("a leads again after %v", took)
		}
		if err := first(); !errors.Is(err, errNoLease) {
			t.Errorf("the first term's check() in the second = %v, want %v", err, errNoLease)
		}
	})
}

// TestCheckNeedsNoTimer: the first question after a pause is answered right,
// whatever goroutine runs first.
func TestCheckNeedsNoTimer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHold(time.Now(), 10*time.Second)
		<-time.After(10*time.Second - 1)
		if err := h.check(); err != nil {
			t.Errorf("check() before the deadline = %v", err)
		}
		<-time.After(1)
		if err := h.check(); !errors.Is(err, errNoLease) {
			t.Errorf("check() at the deadline = %v, want %v", err, errNoLease)
		}
		h.renew(time.Now())
		if err := h.check(); !errors.Is(err, errNoLease) {
			t.Errorf("check() after a renewal that came too late = %v, want %v", err, errNoLease)
		}
	})
}

func TestConflict(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*coordinationv1.Lease) *coordinationv1.Lease
		terms  int32
	}{
		"a label":            {func(l *coordinationv1.Lease) *coordinationv1.Lease { l.Labels = map[string]string{"x": "y"}; return l }, 1},
		"deleted":            {func(*coordinationv1.Lease) *coordinationv1.Lease { return nil }, 1},
		"holder taken out":   {func(l *coordinationv1.Lease) *coordinationv1.Lease { l.Spec.HolderIdentity = nil; return l }, 2},
		"everything emptied": {func(l *coordinationv1.Lease) *coordinationv1.Lease { l.Spec = coordinationv1.LeaseSpec{}; return l }, 2},
		"given to another":   {func(l *coordinationv1.Lease) *coordinationv1.Lease { l.Spec.HolderIdentity = new("z"); return l }, 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				court := new(court)
				a, _ := stand(t, court, "a", 0)
				pass(time.Minute)
				court.edit(c.change)
				lost := watchFor(t, 3*time.Second, func() bool { return !a.leading.Load() }, a)
				if c.terms == 2 && name == "given to another" && lost > 2100*time.Millisecond {
					t.Errorf("a noticed after %v, want by its next renewal", lost)
				}
				watchFor(t, time.Minute, never, a)
				if got := a.terms.Load(); got != c.terms || !a.may() {
					t.Errorf("%d terms, may write %t; want %d and true", got, a.may(), c.terms)
				}
				if court.lease == nil || *court.lease.Spec.HolderIdentity != "a" {
					t.Errorf("lease %+v, want a to hold it", court.lease)
				}
			})
		})
	}
}

// TestDeletedAndRaced: of a leader and another that both make the lease anew one
// wins, and a leader that lost knows at once.
func TestDeletedAndRaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := new(court)
		a, _ := stand(t, c, "a", 0)
		pass(time.Second)
		b, _ := stand(t, c, "b", 0)
		for range 200 {
			c.edit(func(*coordinationv1.Lease) *coordinationv1.Lease { return nil })
			// b may have it before a has noticed: then both may write for less
			// than one renewal, which is what epochs are for.
			pass(5 * time.Second)
			if a.may() == b.may() {
				t.Fatalf("may write: a %t, b %t; want one", a.may(), b.may())
			}
		}
	})
}

// TestLostAnswer: a write that was done but not answered is found out about.
func TestLostAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := new(court)
		a, api := stand(t, c, "a", 0)
		pass(time.Minute)
		for range 20 {
			api.mu.Lock()
			api.after = func() { api.fail(errors.New("connection reset")) }
			api.mu.Unlock()
			pass(3 * time.Second)
			api.fail(nil)
			pass(5 * time.Second)
		}
		if got := a.terms.Load(); got != 1 || !a.may() {
			t.Errorf("%d terms, may write %t; want 1 and true", got, a.may())
		}
		a.stop(t)
		if got := *c.lease.Spec.HolderIdentity; got != "" {
			t.Errorf("held by %q after the end, want nobody", got)
		}
	})
}

// TestServerAway: no answer ends the election, however long it is away.
func TestServerAway(t *testing.T) {
	for _, err := range []error{
		errors.New("connection refused"),
		apierrors.NewInternalError(errors.New("etcd is gone")),
		apierrors.NewForbidden(leaseResource, LeaseName, errors.New("no")),
		apierrors.NewResourceExpired("compacted"),
		apierrors.NewTooManyRequests("later", 1),
	} {
		synctest.Test(t, func(t *testing.T) {
			c := new(court)
			a, one := stand(t, c, "a", 0)
			pass(time.Second)
			b, two := stand(t, c, "b", 0)
			pass(time.Minute)
			one.fail(err)
			two.fail(err)
			if lost := watchFor(t, time.Minute, func() bool { return !a.leading.Load() }, a, b); lost > 11*time.Second {
				t.Errorf("%v: a led for %v", err, lost)
			}
			watchFor(t, time.Hour, never, a, b)
			if a.may() || b.may() {
				t.Errorf("%v: somebody may write", err)
			}
			one.fail(nil)
			two.fail(nil)
			if took := watchFor(t, time.Minute, func() bool { return a.may() || b.may() }, a, b); took > 5*time.Second {
				t.Errorf("%v: nobody led for %v after the API server was back", err, took)
			}
			watchFor(t, time.Minute, never, a, b)
		})
	}
}

// TestClockSkew: the times in a record decide nothing.
func TestClockSkew(t *testing.T) {
	for _, skew := range []time.Duration{-24 * time.Hour, -time.Minute, time.Minute, 24 * time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			c := new(court)
			a, api := stand(t, c, "a", skew)
			pass(time.Second)
			b, _ := stand(t, c, "b", 0)
			watchFor(t, time.Hour, never, a, b)
			if b.terms.Load() != 0 {
				t.Errorf("skew %v: b led beside a", skew)
			}
			api.fail(errors.New("cut off"))
			soonest, latest := takeover(0)
			if took := watchFor(t, time.Minute, b.may, a, b); took < soonest || took > latest {
				t.Errorf("skew %v: b leads after %v, want %v to %v", skew, took, soonest, latest)
			}
		})
	}
}

// TestSlowStop: the lease is renewed until lead has returned, and released after.
func TestSlowStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := new(court)
		e := &elector{
			Election: Election{Namespace: "linkerd", Identity: "a"}.withDefaults(),
			leases:   &line{court: c}, wall: time.Now, log: slog.New(slog.DiscardHandler),
		}
		ctx, cancel := context.WithCancel(t.Context())
		var late error
		done := make(chan struct{})
		go func() {
			defer close(done)
			e.run(ctx, func(ctx context.Context, check func() error) {
				<-ctx.Done()
				<-time.After(18 * time.Second)
				late = check()
			})
		}()
		pass(time.Second) // a comes first
		b, _ := stand(t, c, "b", 0)
		pass(30 * time.Second)
		cancel()
		pass(17 * time.Second)
		if b.leading.Load() {
			t.Error("b leads while a still stops")
		}
		<-done
		if late != nil {
			t.Errorf("check() while stopping = %v", late)
		}
		if took := watchFor(t, time.Minute, b.may, b); took > 5*time.Second {
			t.Errorf("b leads after %v", took)
		}
	})
}

func TestBadElection(t *testing.T) {
	for name, e := range map[string]Election{
		"no name":    {},
		"lease":      {Identity: "a", Lease: 10 * time.Second, Renew: 10 * time.Second},
		"too seldom": {Identity: "a", Lease: 15 * time.Second, Renew: 2 * time.Second, Retry: 2 * time.Second},
	} {
		s := New(newCluster().clients(), Config{Election: e})
		if err := s.Elect(t.Context(), func(context.Context, func() error) { t.Error("it leads") }); err == nil {
			t.Errorf("%s: Elect() = nil", name)
		}
	}
}
