package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// counts is what the load generator has seen, served as JSON on its address.
type counts struct {
	OK        atomic.Int64
	OnPurpose atomic.Int64
	Denied    atomic.Int64
	Failed    atomic.Int64
	Late      atomic.Int64

	mu       sync.Mutex
	failures []Failure
}

// Failure is one request that failed.
type Failure struct {
	Began  time.Time `json:"began"`
	Took   string    `json:"took"`
	Reason string    `json:"reason"`
}

// keptFailures bounds what is remembered of the last ones.
const keptFailures = 100

// Seen is the JSON form of counts.
type Seen struct {
	OK        int64  `json:"ok"`
	OnPurpose int64  `json:"on_purpose"`
	Denied    int64  `json:"denied"`
	Failed    int64  `json:"failed"`
	Late      int64  `json:"late"`
	LastError string `json:"last_error,omitempty"`
	// Failures are the last ones that failed, the oldest first.
	Failures []Failure `json:"failures,omitempty"`
}

func (c *counts) seen() Seen {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := Seen{
		OK: c.OK.Load(), OnPurpose: c.OnPurpose.Load(), Denied: c.Denied.Load(), Failed: c.Failed.Load(), Late: c.Late.Load(),
		Failures: slices.Clone(c.failures),
	}
	if n := len(s.Failures); n > 0 {
		s.LastError = s.Failures[n-1].Reason
	}
	return s
}

// runLoad asks web at a steady rate; a request that can't start since 64 are
// on their way counts as late instead of waiting.
func runLoad(ctx context.Context, o options) error {
	c, err := newClient(o)
	if err != nil {
		return err
	}
	if o.Rate <= 0 || o.Rate > 10_000 {
		return fmt.Errorf("rate %v: want more than 0 and at most 10000 a second", o.Rate)
	}
	seen := &counts{}
	served := make(chan error, 1)
	go func() {
		served <- serveHTTP(ctx, o.Listen, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(seen.seen())
		}))
	}()
	tick := time.NewTicker(time.Duration(float64(time.Second) / o.Rate))
	defer tick.Stop()
	slots := make(chan struct{}, 64)
	for {
		select {
		case err := <-served:
			return err
		case <-ctx.Done():
			return <-served
		case <-tick.C:
		}
		select {
		case slots <- struct{}{}:
			go func() {
				defer func() { <-slots }()
				began := time.Now()
				seen.count(ctx, began, c.get(ctx, o.Targets.Web))
			}()
		default:
			seen.Late.Add(1)
		}
	}
}

func (c *counts) count(ctx context.Context, began time.Time, err error) {
	var status *statusError
	switch {
	case err == nil:
		c.OK.Add(1)
	case errors.Is(err, errOnPurpose):
		c.OnPurpose.Add(1)
	case ctx.Err() != nil:
	case errors.As(err, &status) && status.code == http.StatusForbidden:
		c.Denied.Add(1)
	default:
		c.mu.Lock()
		defer c.mu.Unlock()
		c.Failed.Add(1)
		if len(c.failures) == keptFailures {
			c.failures = slices.Delete(c.failures, 0, 1)
		}
		took := time.Since(began).Round(time.Millisecond).String()
		c.failures = append(c.failures, Failure{Began: began.UTC(), Took: took, Reason: err.Error()})
	}
}
