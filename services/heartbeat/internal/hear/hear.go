// Package hear connects the roll to the world: presences come in from the bus,
// answers and metrics go out. What it hears it does not judge; that is roll's.
package hear

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weftmesh/weft/bus"
	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
	"github.com/weftmesh/weft/services/heartbeat/internal/roll"
)

// tidyEvery is how often processes whose time is over are forgotten.
const tidyEvery = 10 * time.Second

// deaf is how long nothing may be heard before the process is not ready. It
// hears its own presence too, so silence means that the bus is away.
const deaf = 15 * time.Second

// Hearing holds the roll. Make it with New.
type Hearing struct {
	bus   bus.Transport
	clock func() time.Time

	mu    sync.Mutex // over roll and heard
	roll  *roll.Roll
	heard time.Time // the last presence of anybody

	verdicts  *prometheus.CounterVec
	processes *prometheus.Desc
}

// New makes a Hearing that measures itself on reg. clock may be nil.
func New(t bus.Transport, reg prometheus.Registerer, clock func() time.Time) *Hearing {
	if clock == nil {
		clock = time.Now
	}
	h := &Hearing{
		bus:   t,
		clock: clock,
		roll:  roll.New(roll.Limits{}),
		verdicts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "weft_heartbeat_presences_total",
			Help: "Presences heard, by what became of them.",
		}, []string{"verdict"}),
		processes: prometheus.NewDesc("weft_heartbeat_processes",
			"Processes on the roll, by service and state.", []string{"service", "state"}, nil),
	}
	for _, v := range []roll.Verdict{roll.Taken, roll.Malformed, roll.Late, roll.Crowded} {
		h.verdicts.WithLabelValues(string(v))
	}
	reg.MustRegister(h.verdicts, h)
	return h
}

// Run hears until ctx is done.
func (h *Hearing) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var tidied sync.WaitGroup
	defer tidied.Wait()
	tidied.Go(func() { h.tidy(ctx) })
	defer cancel()
	for p, err := range bus.Hear(ctx, h.bus) {
		if err != nil {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return fmt.Errorf("keeping the roll: %w", err)
		}
		h.take(p)
	}
	return context.Cause(ctx)
}

// Serve answers who asks for the roll, until ctx is done.
func (h *Hearing) Serve(ctx context.Context) error {
	if err := bus.ServeRoll(ctx, h.bus, h.Roll); err != nil {
		return fmt.Errorf("answering for the roll: %w", err)
	}
	return nil
}

// Roll is the roll as of now.
func (h *Hearing) Roll() *busv1.Roll {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := h.clock()
	h.roll.Forget(now)
	return h.roll.Entries(now)
}

// Healthy tells whether anything was heard of late.
func (h *Hearing) Healthy() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.heard.IsZero() {
		return errors.New("nothing was heard on the bus yet")
	}
	if ago := h.clock().Sub(h.heard); ago >= deaf {
		return fmt.Errorf("nothing was heard on the bus for %s", ago.Round(time.Second))
	}
	return nil
}

func (h *Hearing) take(p *busv1.Presence) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.heard = h.clock()
	h.verdicts.WithLabelValues(string(h.roll.Hear(p, h.heard))).Inc()
}

// tidy forgets, so that the roll is right and small even if nobody asks for it.
func (h *Hearing) tidy(ctx context.Context) {
	tick := time.NewTicker(tidyEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			h.mu.Lock()
			h.roll.Forget(h.clock())
			h.mu.Unlock()
		}
	}
}

// Describe and Collect make a Hearing a prometheus.Collector: the roll is
// counted when somebody looks, not whenever it changes.
func (h *Hearing) Describe(ch chan<- *prometheus.Desc) { ch <- h.processes }

// Collect counts the roll.
func (h *Hearing) Collect(ch chan<- prometheus.Metric) {
	h.mu.Lock()
	counts := h.roll.Count(h.clock())
	h.mu.Unlock()
	for g, n := range counts {
		ch <- prometheus.MustNewConstMetric(h.processes, prometheus.GaugeValue, float64(n), g.Service, string(g.Health))
	}
}
