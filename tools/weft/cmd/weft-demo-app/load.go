package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
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
	Again     atomic.Int64
	slowest   atomic.Int64
	answer    atomic.Pointer[string]

	mu       sync.Mutex
	failures []Failure
	again    []string
}

// Failure is one request that failed.
type Failure struct {
	Began  time.Time `json:"began"`
	Took   string    `json:"took"`
	Reason string    `json:"reason"`
}

// kept bounds what is remembered of the last failures and cuts.
const kept = 100

// Seen is the JSON form of counts.
type Seen struct {
	OK        int64 `json:"ok"`
	OnPurpose int64 `json:"on_purpose"`
	Denied    int64 `json:"denied"`
	Failed    int64 `json:"failed"`
	Late      int64 `json:"late"`
	// Again counts pages for which the ledger was asked over a second connection,
	// since the first one was cut.
	Again int64 `json:"again"`
	// Slowest is the time of the slowest answer since the last report.
	Slowest   time.Duration `json:"slowest_ns"`
	LastError string        `json:"last_error,omitempty"`
	// LastAnswer is what the last request that went well was answered.
	LastAnswer string `json:"last_answer,omitempty"`
	// Failures are the last ones that failed, the oldest first.
	Failures []Failure `json:"failures,omitempty"`
	// Cuts are what was said of the last of those connections, the oldest first.
	Cuts []string `json:"cuts,omitempty"`
}

func (c *counts) seen() Seen {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := Seen{
		OK: c.OK.Load(), OnPurpose: c.OnPurpose.Load(), Denied: c.Denied.Load(), Failed: c.Failed.Load(), Late: c.Late.Load(), Again: c.Again.Load(),
		Slowest:  time.Duration(c.slowest.Swap(0)),
		Failures: slices.Clone(c.failures), Cuts: slices.Clone(c.again),
	}
	if a := c.answer.Load(); a != nil {
		s.LastAnswer = *a
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
	path := "/?what=" + url.QueryEscape(o.What)
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
				answer, err := c.get(ctx, o.Targets.Web, path)
				seen.count(ctx, began, answer, err)
			}()
		default:
			seen.Late.Add(1)
		}
	}
}

func (c *counts) count(ctx context.Context, began time.Time, answer string, err error) {
	var status *statusError
	took := time.Since(began)
	for old := c.slowest.Load(); int64(took) > old && !c.slowest.CompareAndSwap(old, int64(took)); {
		old = c.slowest.Load()
	}
	switch {
	case err == nil:
		c.OK.Add(1)
		c.answer.Store(&answer)
		c.noteAgain(answer)
	case errors.Is(err, errOnPurpose):
		c.OnPurpose.Add(1)
	case ctx.Err() != nil:
	case errors.As(err, &status) && status.code == http.StatusForbidden:
		c.Denied.Add(1)
	default:
		c.mu.Lock()
		defer c.mu.Unlock()
		c.Failed.Add(1)
		c.failures = keep(c.failures, Failure{Began: began.UTC(), Took: took.Round(time.Millisecond).String(), Reason: err.Error()})
	}
}

// noteAgain looks in a page for the word of a second connection.
func (c *counts) noteAgain(page string) {
	_, said, ok := strings.Cut(page, againWord)
	if !ok {
		return
	}
	c.Again.Add(1)
	line, _, _ := strings.Cut(said, "\n")
	c.mu.Lock()
	defer c.mu.Unlock()
	c.again = keep(c.again, time.Now().UTC().Format(time.RFC3339)+line)
}

// keep appends, and forgets the first one when there are too many.
func keep[T any](all []T, one T) []T {
	if len(all) == kept {
		all = slices.Delete(all, 0, 1)
	}
	return append(all, one)
}
