package kube

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weftmesh/weft/services/kit/pause"
)

// LeaseName is the Lease that the leader holds.
const LeaseName = "weft-watcher"

// Election says how the writer of the log is chosen.
type Election struct {
	// Alone means that there is no election: this process is the only watcher.
	Alone bool
	// Namespace is where the lease is.
	Namespace string
	// Identity is this process's name in it, different for every process.
	Identity string
	// Owner is what the lease is removed with; nil means that it stays.
	Owner *metav1.OwnerReference
	// Lease, Renew and Retry are client-go's: how long the lease lasts, when the
	// holder gives up renewing, how often it tries. 0 means 15 s, 10 s and 2 s.
	Lease, Renew, Retry time.Duration
}

// jitter spreads the candidates' attempts: a wait is up to this many times
// longer than Retry. client-go has the same.
const jitter = 1.2

func (e Election) withDefaults() Election {
	if e.Lease <= 0 {
		e.Lease = 15 * time.Second
	}
	if e.Renew <= 0 {
		e.Renew = 10 * time.Second
	}
	if e.Retry <= 0 {
		e.Retry = 2 * time.Second
	}
	return e
}

// check is client-go's rule for the times.
func (e Election) check() error {
	switch {
	case e.Identity == "":
		return errors.New("this process has no name")
	case e.Lease <= e.Renew:
		return fmt.Errorf("a lease of %v would end before its holder gives up after %v", e.Lease, e.Renew)
	case e.Renew <= time.Duration(jitter*float64(e.Retry)):
		return fmt.Errorf("trying every %v is too seldom to renew within %v", e.Retry, e.Renew)
	}
	return nil
}

// Elect waits for the lease and calls lead while it is held. A lost lease ends
// lead's context and is waited for again; the process goes on as a standby.
//
// The election is for liveness: that somebody writes, and as a rule one. Safety
// doesn't rest on it, since a lease can't stop a leader that was paused between
// check and write. The log's epoch does: readers drop what an older one writes.
func (s *Source) Elect(ctx context.Context, lead func(context.Context, func() error)) error {
	e := s.cfg.Election.withDefaults()
	if e.Alone {
		s.abreast(ctx)
		lead(ctx, func() error { return nil })
		<-ctx.Done()
		return nil
	}
	if err := e.check(); err != nil {
		return fmt.Errorf("taking part in the election: %w", err)
	}
	x := &elector{Election: e, leases: s.clients.Leases(e.Namespace), wall: time.Now, log: s.cfg.Log}
	x.run(ctx, func(ctx context.Context, check func() error) {
		if s.abreast(ctx); check() == nil {
			lead(ctx, check)
		}
	})
	return nil
}

// leases are the calls on Leases of one namespace that an election needs.
type leases interface {
	Get(ctx context.Context, name string, o metav1.GetOptions) (*coordinationv1.Lease, error)
	Create(ctx context.Context, l *coordinationv1.Lease, o metav1.CreateOptions) (*coordinationv1.Lease, error)
	Update(ctx context.Context, l *coordinationv1.Lease, o metav1.UpdateOptions) (*coordinationv1.Lease, error)
}

// elector is one process's part in the election. Only run's goroutine uses it.
type elector struct {
	Election
	leases leases
	wall   func() time.Time // what the record says; nothing is decided by it
	log    *slog.Logger

	known   sight
	sent    time.Time // when the last write that went through was sent
	leading bool
	failed  bool // the last attempt did, and it was logged
}

func (x *elector) run(ctx context.Context, lead func(context.Context, func() error)) {
	for ctx.Err() == nil {
		if !x.attempt(ctx, time.Now().Add(x.Renew)) {
			pause.For(ctx, x.Retry+time.Duration(rand.Float64()*jitter*float64(x.Retry))) //nolint:gosec // when a candidate asks need not be a secret
			continue
		}
		x.term(ctx, lead)
		if ctx.Err() == nil {
			x.log.Warn("leadership lost; standing by", "lease", x.Namespace+"/"+LeaseName)
		}
	}
}

// term leads until the lease is lost or ctx ends. The lease is renewed until
// lead has returned, and released only then, so that the next leader never
// writes beside this one.
func (x *elector) term(ctx context.Context, lead func(context.Context, func() error)) {
	x.log.Info("leadership won", "lease", x.Namespace+"/"+LeaseName, "identity", x.Identity)
	x.leading = true
	defer func() { x.leading = false }()
	h := newHold(x.sent, x.Renew)
	leading, stop := context.WithCancel(ctx)
	defer stop()
	renewing, ended := context.WithCancel(context.WithoutCancel(ctx))
	go func() {
		defer ended() // cuts short an attempt under way
		lead(leading, h.check)
		<-leading.Done()
	}()
	for h.check() == nil && renewing.Err() == nil {
		pause.For(renewing, min(x.Retry, time.Until(h.until())))
		if renewing.Err() != nil || h.check() != nil {
			break
		}
		if x.attempt(renewing, h.until()) {
			h.renew(x.sent)
		} else if x.ousted() {
			h.lose()
		}
	}
	stop()
	<-renewing.Done()
	if h.check() == nil {
		x.release(context.WithoutCancel(ctx))
	}
	h.lose()
}

// ousted: the lease is there and isn't this process's.
func (x *elector) ousted() bool {
	return x.known.lease != nil && x.known.holder() != x.Identity
}

// attempt tries once to take or renew the lease. Losing a race is no failure;
// whatever the API server answers, there will be another attempt.
func (x *elector) attempt(ctx context.Context, deadline time.Time) bool {
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	held, err := x.try(ctx)
	switch {
	case err == nil:
		x.failed = false
	case errors.Is(ctx.Err(), context.Canceled): // stopping
	case !x.failed:
		x.failed = true
		x.log.Warn("the lease could not be read or written; trying again", "lease", x.Namespace+"/"+LeaseName, "error", err)
	}
	return held
}

func (x *elector) try(ctx context.Context) (bool, error) {
	if x.known.holder() == x.Identity {
		// As a rule nobody else has written since, and one request is enough.
		err := x.write(ctx, x.claim())
		if err == nil || !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
			return err == nil, err
		}
	}
	if err := x.look(ctx); err != nil {
		return false, err
	}
	// A leader whose lease was another's for a moment has lost it, even if it is
	// free now. One whose lease was deleted makes a new one.
	if x.leading && x.ousted() || !x.known.free(x.Identity, x.Lease, time.Now()) {
		return false, nil
	}
	err := x.write(ctx, x.claim())
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
		return false, x.look(ctx) // the race is lost; who won counts from now
	}
	return err == nil, err
}

func (x *elector) claim() *coordinationv1.Lease {
	return owned(x.known.claim(LeaseName, x.Namespace, x.Identity, x.Lease, x.wall()), x.Owner)
}

// look reads the lease; one that isn't there is known as none.
func (x *elector) look(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, x.Renew/2)
	defer cancel()
	got, err := x.leases.Get(ctx, LeaseName, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		x.known = sight{}
	case err != nil:
		return fmt.Errorf("reading the lease: %w", err)
	default:
		x.known = x.known.see(got, time.Now())
	}
	return nil
}

// write sends a lease: a new one if none is known.
func (x *elector) write(ctx context.Context, l *coordinationv1.Lease) error {
	ctx, cancel := context.WithTimeout(ctx, x.Renew/2)
	defer cancel()
	sent := time.Now()
	var got *coordinationv1.Lease
	var err error
	if x.known.lease == nil {
		got, err = x.leases.Create(ctx, l, metav1.CreateOptions{})
	} else {
		got, err = x.leases.Update(ctx, l, metav1.UpdateOptions{})
	}
	if err != nil {
		return fmt.Errorf("writing the lease: %w", err)
	}
	x.known, x.sent = x.known.see(got, time.Now()), sent
	return nil
}

// release gives the lease up, so that the next leader needn't wait for its end.
// An attempt that was cut short may have been done all the same, so a refusal
// is followed by one more look.
func (x *elector) release(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, x.Renew)
	defer cancel()
	for range 2 {
		if x.known.lease == nil || x.known.holder() != x.Identity {
			return
		}
		err := x.write(ctx, x.known.release(x.wall()))
		if apierrors.IsConflict(err) {
			err = x.look(ctx)
			if err == nil {
				continue
			}
		}
		if err != nil && !apierrors.IsNotFound(err) {
			x.log.Warn("the lease could not be released; it ends by itself", "lease", x.Namespace+"/"+LeaseName, "error", err)
		}
		return
	}
}
