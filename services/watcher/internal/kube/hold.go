package kube

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

var errNoLease = errors.New("the lease is not held any more")

// hold is one term's claim to the lease: good for a while after the last
// renewal, and never again once it was found to have ended. check may be asked
// by anybody, and needs no timer: a process that was stopped in between finds
// out by the first question it asks.
type hold struct {
	renewed atomic.Pointer[time.Time] // when the last good renewal was sent; nil: lost
	good    time.Duration
}

func newHold(began time.Time, good time.Duration) *hold {
	h := &hold{good: good}
	h.renewed.Store(&began)
	return h
}

func (h *hold) check() error {
	for {
		at := h.renewed.Load()
		if at == nil {
			return errNoLease
		}
		if time.Since(*at) < h.good {
			return nil
		}
		if h.renewed.CompareAndSwap(at, nil) {
			return fmt.Errorf("%w: not renewed for %v", errNoLease, h.good)
		}
	}
}

func (h *hold) renew(began time.Time) {
	if at := h.renewed.Load(); at != nil {
		h.renewed.CompareAndSwap(at, &began)
	}
}

func (h *hold) lose() { h.renewed.Store(nil) }

// until is when the claim ends unless it is renewed.
func (h *hold) until() time.Time {
	if at := h.renewed.Load(); at != nil {
		return at.Add(h.good)
	}
	return time.Time{}
}
