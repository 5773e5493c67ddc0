package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
)

// clientID is the header by which a workload's proxy names the client's identity.
const clientID = "l5d-client-id"

// runWeb serves a page made of what the other services say, all asked at once,
// about what the query names. The page says who asked whom, as the proxies did.
func runWeb(ctx context.Context, o options) error {
	c, err := newClient(o)
	if err != nil {
		return err
	}
	return serveHTTP(ctx, o.Listen, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked, err := c.page(r.Context(), o.Targets, cmp.Or(r.URL.Query().Get("what"), "apple"))
		switch {
		case err == nil:
			_, _ = fmt.Fprintf(w, "the shop is open, says %s\n%s asked by %s\n%s", o.Listen, o.Name, r.Header.Get(clientID), asked)
		case errors.Is(err, errOnPurpose):
			w.Header().Set(onPurpose, o.Name)
			http.Error(w, err.Error(), http.StatusInternalServerError)
		default:
			http.Error(w, err.Error(), http.StatusBadGateway)
		}
	}))
}

// page asks every service that is named, and returns lines that say who asked
// those that can tell. An error nobody meant wins over one that was meant, so that
// it can't hide.
func (c *client) page(ctx context.Context, t targets, what string) (asked string, err error) {
	var lines strings.Builder // of prices alone, so that nobody else writes it
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
	add("books", t.Books, func() error {
		_, err := c.get(ctx, t.Books, "/")
		return err
	})
	add("cards", t.Cards, func() error {
		_, err := c.get(ctx, t.Cards, "/")
		return err
	})
	add("prices", t.Prices, func() error {
		by, again, err := c.price(ctx, what)
		fmt.Fprintf(&lines, "prices asked by %s\n", by)
		if again != "" {
			fmt.Fprintf(&lines, "ledger %s\n", again)
		}
		return err
	})
	add("ledger", t.Ledger, func() error {
		_, err := c.booked(ctx, t.Ledger, what+" 1")
		return err
	})

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
			return "", err
		}
	}
	return lines.String(), meant
}
