package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// runWeb serves a page made of what the other services say, all asked at once.
func runWeb(ctx context.Context, o options) error {
	c, err := newClient(o)
	if err != nil {
		return err
	}
	return serveHTTP(ctx, o.Listen, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		err := c.page(r.Context(), o.Targets)
		switch {
		case err == nil:
			_, _ = fmt.Fprintf(w, "the shop is open, says %s\n", o.Listen)
		case errors.Is(err, errOnPurpose):
			w.Header().Set(onPurpose, o.Name)
			http.Error(w, err.Error(), http.StatusInternalServerError)
		default:
			http.Error(w, err.Error(), http.StatusBadGateway)
		}
	}))
}

// page asks every service that is named. An error nobody meant wins over one
// that was meant, so that it can't hide.
func (c *client) page(ctx context.Context, t targets) error {
	var asks []func() error
	add := func(name, target string, ask func() error) {
		if target == "" {
			return
		}
		asks = append(asks, func() error {
			if err := ask(); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			return nil
		})
	}
	add("books", t.Books, func() error { return c.get(ctx, t.Books) })
	add("cards", t.Cards, func() error { return c.get(ctx, t.Cards) })
	add("prices", t.Prices, func() error { return c.price(ctx, "apple") })
	add("ledger", t.Ledger, func() error { return c.booked(ctx, t.Ledger, "apple 1") })

	errs := make([]error, len(asks))
	var wg sync.WaitGroup
	for i, ask := range asks {
		wg.Go(func() { errs[i] = ask() })
	}
	wg.Wait()
	var meant error
	for _, err := range errs {
		switch {
		case errors.Is(err, errOnPurpose):
			meant = err
		case err != nil:
			return err
		}
	}
	return meant
}

// counts is what the load generator has seen, served as JSON on its address.
type counts struct {
	OK        atomic.Int64
	OnPurpose atomic.Int64
	Denied    atomic.Int64
	Failed    atomic.Int64
	Late      atomic.Int64
	lastErr   atomic.Value
}

// Seen is the JSON form of counts.
type Seen struct {
	OK        int64  `json:"ok"`
	OnPurpose int64  `json:"on_purpose"`
	Denied    int64  `json:"denied"`
	Failed    int64  `json:"failed"`
	Late      int64  `json:"late"`
	LastError string `json:"last_error,omitempty"`
}

func (c *counts) seen() Seen {
	last, _ := c.lastErr.Load().(string)
	return Seen{OK: c.OK.Load(), OnPurpose: c.OnPurpose.Load(), Denied: c.Denied.Load(), Failed: c.Failed.Load(), Late: c.Late.Load(), LastError: last}
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
				seen.count(ctx, c.get(ctx, o.Targets.Web))
			}()
		default:
			seen.Late.Add(1)
		}
	}
}

func (c *counts) count(ctx context.Context, err error) {
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
		c.Failed.Add(1)
		c.lastErr.Store(err.Error())
	}
}
