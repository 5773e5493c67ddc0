package kube

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
)

// candidate is one process in an election.
type candidate struct {
	leading atomic.Bool
	terms   atomic.Int32
	check   atomic.Pointer[func() error]
	cancel  context.CancelFunc
	done    chan error
}

func run(t *testing.T, c *cluster, name string) *candidate {
	t.Helper()
	s := New(c.clients(), Config{
		Election: Election{Namespace: "linkerd", Identity: name, Lease: 3 * time.Second, Renew: time.Second, Retry: 100 * time.Millisecond},
		Log:      slog.New(slog.DiscardHandler),
	})
	ctx, cancel := context.WithCancel(t.Context())
	x := &candidate{cancel: cancel, done: make(chan error, 1)}
	go func() {
		x.done <- s.Elect(ctx, func(ctx context.Context, check func() error) {
			x.check.Store(&check)
			x.terms.Add(1)
			x.leading.Store(true)
			<-ctx.Done()
			x.leading.Store(false)
		})
	}()
	t.Cleanup(func() { x.stop(t) })
	return x
}

func (x *candidate) stop(t *testing.T) {
	t.Helper()
	x.cancel()
	if x.done == nil {
		return
	}
	if err := <-x.done; err != nil {
		t.Errorf("Elect() = %v", err)
	}
	x.done = nil
}

func TestOneLeads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster()
		a := run(t, c, "a")
		until(t, "a leads", a.leading.Load)
		b := run(t, c, "b")
		pass(time.Minute)
		if b.leading.Load() {
			t.Fatal("two leaders")
		}
		// A leader that stops releases the lease: b needn't wait for it to expire.
		a.stop(t)
		if a.leading.Load() {
			t.Error("a leads after Elect has returned")
		}
		pass(time.Second)
		if !b.leading.Load() {
			t.Error("b does not lead a second after a has stopped")
		}
		lease, err := c.typed.Leases("linkerd").Get(t.Context(), LeaseName, metav1.GetOptions{})
		if err != nil || lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity != "b" {
			t.Errorf("lease %+v, %v; want b to hold it", lease, err)
		}
	})
}

// TestLostLease (complaint D13): when the lease can't be renewed, leading ends,
// writes are refused at once, and the process comes back as soon as it can.
func TestLostLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster()
		var broken atomic.Bool
		c.typed.PrependReactor("update", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
			if broken.Load() {
				return true, nil, errors.New("the API server is away")
			}
			return false, nil, nil
		})
		a := run(t, c, "a")
		until(t, "a leads", a.leading.Load)
		if err := (*a.check.Load())(); err != nil {
			t.Errorf("check() while leading = %v", err)
		}
		broken.Store(true)
		until(t, "a has stopped", func() bool { return !a.leading.Load() })
		if err := (*a.check.Load())(); !errors.Is(err, errNoLease) {
			t.Errorf("check() after the lease was lost = %v, want %v", err, errNoLease)
		}
		broken.Store(false)
		until(t, "a leads again", a.leading.Load)
		if got := a.terms.Load(); got != 2 {
			t.Errorf("%d terms, want 2", got)
		}
	})
}

func TestAloneLeadsAtOnce(t *testing.T) {
	c := newCluster()
	s := New(c.clients(), Config{Election: Election{Alone: true}})
	ctx, cancel := context.WithCancel(t.Context())
	led := false
	err := s.Elect(ctx, func(_ context.Context, check func() error) {
		led = check() == nil
		cancel()
	})
	if err != nil || !led {
		t.Errorf("Elect() = %v, led %t", err, led)
	}
	if n := len(c.typed.Actions()); n != 0 {
		t.Errorf("%d requests to the API server, want none", n)
	}
}
