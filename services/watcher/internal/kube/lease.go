package kube

import (
	"math"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// sight is the lease as one candidate knows it. Clocks of different machines
// are never compared: the times in a lease are for people, and a holder counts
// as alive until its record has been seen unchanged for its duration.
type sight struct {
	lease *coordinationv1.Lease // nil: none is known
	since time.Time             // when this record was first seen, on our own clock
}

// see is what is known after a look at the API server, or an answer from it.
func (s sight) see(lease *coordinationv1.Lease, now time.Time) sight {
	if s.lease != nil && s.lease.UID == lease.UID && sameRecord(&s.lease.Spec, &lease.Spec) {
		return sight{lease, s.since} // labels may have changed, and they renew nothing
	}
	return sight{lease, now}
}

func sameRecord(a, b *coordinationv1.LeaseSpec) bool {
	return same(a.HolderIdentity, b.HolderIdentity) &&
		same(a.LeaseDurationSeconds, b.LeaseDurationSeconds) &&
		same(a.LeaseTransitions, b.LeaseTransitions) &&
		a.AcquireTime.Equal(b.AcquireTime) && a.RenewTime.Equal(b.RenewTime)
}

func same[T comparable](a, b *T) bool {
	if a == nil || b == nil {
		return a == b
	}
	return *a == *b
}

// holder is empty when nobody holds the lease.
func (s sight) holder() string {
	if s.lease == nil || s.lease.Spec.HolderIdentity == nil {
		return ""
	}
	return *s.lease.Spec.HolderIdentity
}

// free tells whether me may take the lease, or has it already. usual is for a
// record that doesn't say how long it lasts.
func (s sight) free(me string, usual time.Duration, now time.Time) bool {
	if h := s.holder(); h == "" || h == me {
		return true
	}
	lasts := usual
	if d := s.lease.Spec.LeaseDurationSeconds; d != nil && *d > 0 {
		lasts = time.Duration(*d) * time.Second
	}
	return !now.Before(s.since.Add(lasts))
}

// claim is the lease to write when me takes it or renews it. It carries the
// version that was seen, so that of two who claim one is refused.
func (s sight) claim(name, namespace, me string, lasts time.Duration, wall time.Time) *coordinationv1.Lease {
	now := metav1.NewMicroTime(wall)
	if s.lease == nil {
		return &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
			Spec:       record(me, lasts, now, now, 0),
		}
	}
	next := s.lease.DeepCopy()
	acquired, turns := now, s.turns()
	if s.holder() != me {
		turns = min(turns, math.MaxInt32-1) + 1 // the API server refuses one below zero
	} else if at := s.lease.Spec.AcquireTime; at != nil {
		acquired = *at
	}
	next.Spec = record(me, lasts, acquired, now, turns)
	return next
}

// release is the lease to write when its holder gives it up: free at once, and
// short in case somebody minds only the duration.
func (s sight) release(wall time.Time) *coordinationv1.Lease {
	now := metav1.NewMicroTime(wall)
	next := s.lease.DeepCopy()
	next.Spec = record("", time.Second, now, now, s.turns())
	return next
}

func (s sight) turns() int32 {
	if n := s.lease.Spec.LeaseTransitions; n != nil {
		return max(*n, 0)
	}
	return 0
}

// record has the fields that client-go's elector writes, so that one of ours
// and one of theirs can share a lease.
func record(holder string, lasts time.Duration, acquired, renewed metav1.MicroTime, turns int32) coordinationv1.LeaseSpec {
	// Rounded up: whoever reads it must not think it over before we do.
	seconds := int32(min((lasts+time.Second-1)/time.Second, math.MaxInt32))
	return coordinationv1.LeaseSpec{
		HolderIdentity:       &holder,
		LeaseDurationSeconds: &seconds,
		AcquireTime:          &acquired,
		RenewTime:            &renewed,
		LeaseTransitions:     &turns,
	}
}
