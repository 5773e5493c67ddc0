package profile

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weftmesh/weft/proxy/internal/classify"
	"github.com/weftmesh/weft/proxy/internal/message"
	"github.com/weftmesh/weft/proxy/internal/resolve"
	"github.com/weftmesh/weft/proxy/internal/tell"
)

// book has the profile of web.shop; other names take for ever.
type book struct {
	mu    sync.Mutex
	asked []string
	live  int
}

func (b *book) Profile(ctx context.Context, to resolve.Target, each func(*resolve.Profile)) error {
	b.mu.Lock()
	b.asked = append(b.asked, to.String())
	b.live++
	b.mu.Unlock()
	defer func() { b.mu.Lock(); b.live--; b.mu.Unlock() }()
	switch {
	case strings.HasPrefix(to.Authority, "web.shop"):
		each(&resolve.Profile{Name: "web.shop.svc", Routes: []resolve.ProfileRule{{
			Condition: &resolve.Condition{Method: "POST"}, Labels: []resolve.Label{{Name: "route", Value: "write"}}, Timeout: time.Second,
			Classes: classify.Classes{{Match: classify.Match{Low: 404, High: 404}, Failure: true}},
		}}})
	case strings.HasPrefix(to.Authority, "none."):
		return errors.New("no such service")
	}
	<-ctx.Done()
	return context.Cause(ctx)
}

func request(method, authority string, fields ...message.Field) *message.Request {
	return &message.Request{Method: method, Authority: authority, Target: "/", Fields: fields}
}

func TestRoutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, reg, m := new(book), prometheus.NewRegistry(), tell.New(tell.Config{})
		reg.MustRegister(m)
		p := New(b, m, 500*time.Millisecond, 90*time.Second, slog.New(slog.DiscardHandler))
		if p.Route(t.Context(), request("GET", "web.shop")) != nil {
			t.Error("a route before the start")
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- p.Run(ctx) }()
		synctest.Wait()

		write := p.Route(ctx, request("POST", "Web.Shop:8080"))
		if write == nil || write.Timeout() != time.Second || write.Success(404, "") || !write.Success(200, "") || write.Success(500, "") {
			t.Fatalf("%+v", write)
		}
		write.Begin()
		write.End(404, false, 7*time.Millisecond)
		if rest := p.Route(ctx, request("GET", "web.shop:8080")); rest == nil || rest.Timeout() != 0 {
			t.Errorf("the rest: %+v", rest)
		}
		if r := p.Route(ctx, request("POST", "10.0.0.1", message.Field{Name: "L5d-Dst-Canonical", Value: "web.shop:80"})); r == nil {
			t.Error("the canonical name is not looked at")
		}
		for _, authority := range []string{"10.0.0.1:80", "[::1]:80", "", "none.shop"} {
			if p.Route(ctx, request("GET", authority)) != nil {
				t.Errorf("%q has a route", authority)
			}
		}
		// Who waits for a profile does so once.
		began := time.Now()
		p.Route(ctx, request("GET", "slow.shop"))
		if waited := time.Since(began); waited != 500*time.Millisecond {
			t.Errorf("waited for %v", waited)
		}
		p.Route(ctx, request("GET", "slow.shop"))
		if waited := time.Since(began); waited != 500*time.Millisecond {
			t.Errorf("waited again, for %v", waited)
		}
		b.mu.Lock()
		if !slices.Equal(b.asked, []string{"web.shop:8080", "web.shop:8080", "web.shop:80", "none.shop:80", "slow.shop:80"}) {
			t.Errorf("asked for %q", b.asked)
		}
		b.mu.Unlock()

		time.Sleep(3 * time.Minute) //nolint:forbidigo // virtual time
		synctest.Wait()             // a sweep falls on that moment
		p.mu.Lock()
		names := len(p.names)
		p.mu.Unlock()
		b.mu.Lock()
		if b.live != 0 || names != 0 {
			t.Errorf("%d are followed that nobody asks for", b.live)
		}
		b.mu.Unlock()
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		families, err := reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, f := range families {
			for _, m := range f.GetMetric() {
				if l := fmt.Sprint(m.GetLabel()); strings.Contains(l, `"write"`) && strings.Contains(l, `"inbound"`) && strings.Contains(l, `"web.shop.svc:8080"`) && m.GetCounter().GetValue()+float64(m.GetHistogram().GetSampleCount()) > 0 {
					got = append(got, f.GetName())
				}
			}
		}
		if !slices.Equal(got, []string{"route_request_total", "route_response_latency_ms", "route_response_total"}) {
			t.Errorf("counted %q", got)
		}
	})
}

func TestNamesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New(new(book), tell.New(tell.Config{}), 0, time.Minute, slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithCancel(t.Context())
		go func() { _ = p.Run(ctx) }()
		synctest.Wait()
		for i := range maxNames + 10 {
			p.Route(ctx, request("GET", fmt.Sprint("name-", i)))
		}
		if len(p.names) != maxNames {
			t.Errorf("%d names", len(p.names))
		}
		cancel()
		synctest.Wait()
	})
	var none *Profiles
	if none.Route(t.Context(), request("GET", "web")) != nil {
		t.Error("a route of nothing")
	}
}
