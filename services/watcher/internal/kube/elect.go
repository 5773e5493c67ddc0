package kube

import (
	"context"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
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
	// Lease, Renew and Retry are client-go's: how long the lease lasts, when the
	// holder gives up renewing, how often it tries. 0 means 15 s, 10 s and 2 s.
	Lease, Renew, Retry time.Duration
}

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

var errNoLease = errors.New("the lease is not held any more")

// Elect waits for the lease and calls lead while it is held. A lost lease ends
// lead's context and is waited for again; the process goes on as a standby.
func (s *Source) Elect(ctx context.Context, lead func(context.Context, func() error)) error {
	e := s.cfg.Election.withDefaults()
	if e.Alone {
		lead(ctx, func() error { return nil })
		<-ctx.Done()
		return nil
	}
	for ctx.Err() == nil {
		if err := s.term(ctx, e, lead); err != nil {
			return err
		}
		if ctx.Err() == nil {
			s.cfg.Log.Warn("leadership lost; standing by", "lease", e.Namespace+"/"+LeaseName)
		}
	}
	return nil
}

// term takes part in the election until leadership was won and lost, or ctx
// ends. The lease is released only after lead has returned, so that the next
// leader never writes beside this one.
func (s *Source) term(ctx context.Context, e Election, lead func(context.Context, func() error)) error {
	electing, giveUp := context.WithCancel(context.WithoutCancel(ctx))
	defer giveUp()
	leading, stop := context.WithCancel(ctx)
	defer stop()

	begin := make(chan struct{})
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Namespace: e.Namespace, Name: LeaseName},
			Client:     s.clients.Lease.CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: e.Identity},
		},
		Name:            LeaseName,
		LeaseDuration:   e.Lease,
		RenewDeadline:   e.Renew,
		RetryPeriod:     e.Retry,
		ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) {
				select {
				case begin <- struct{}{}:
				case <-ctx.Done():
				}
			},
			OnStoppedLeading: func() {},
		},
	})
	if err != nil {
		return fmt.Errorf("taking part in the election: %w", err)
	}
	// Asked before every write: client-go itself notices a lost lease only some
	// time later, and a process that was stopped for a while not at all.
	check := func() error {
		if !elector.IsLeader() {
			return errNoLease
		}
		if err := elector.Check(e.Renew - e.Lease); err != nil {
			return fmt.Errorf("%w: not renewed for %v", errNoLease, e.Renew)
		}
		return nil
	}

	ended := make(chan struct{})
	go func() {
		defer close(ended)
		elector.Run(electing)
	}()
	led := make(chan struct{})
	close(led) // nobody leads yet
	tick := time.NewTicker(max(e.Retry/4, 10*time.Millisecond))
	defer tick.Stop()
	won := false
	for {
		select {
		case <-begin:
			won = true
			led = make(chan struct{})
			s.cfg.Log.Info("leadership won", "lease", e.Namespace+"/"+LeaseName, "identity", e.Identity)
			go func() {
				defer close(led)
				lead(leading, check)
			}()
		case <-tick.C:
			if won && check() != nil {
				// Whatever client-go makes of it, this term is over.
				stop()
				<-led
				giveUp()
			}
		case <-ended:
			stop()
			<-led
			return nil
		case <-ctx.Done():
			stop()
			<-led
			giveUp()
			<-ended
			return nil
		}
	}
}
