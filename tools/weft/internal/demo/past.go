package demo

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weftmesh/weft/bus"
	"github.com/weftmesh/weft/tools/weft/internal/history"
)

// checkPast wants the history to tell that the denial was taken back, and when.
func (m *mesh) checkPast(ctx context.Context, _ Options) error {
	// What the connection logs is no part of the check's list.
	defer slog.SetLogLoggerLevel(slog.SetLogLoggerLevel(slog.LevelError))
	t, err := bus.Connect(ctx, bus.Config{Servers: []string{"nats://" + m.addr(portBus)}, Cluster: near}, "cli", prometheus.NewRegistry())
	if err != nil {
		return err
	}
	defer t.Close()
	h, err := bus.OpenHistory(t, bus.HistoryDomain)
	if err != nil {
		return err
	}
	object, err := history.Parse("authorizationpolicy", "shop/web-only-till")
	if err != nil {
		return err
	}
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	end := time.After(30 * time.Second)
	for {
		now := time.Now()
		ask := history.Ask{Object: object, Cluster: near, Since: now.Add(-time.Hour), Now: now}
		story, err := h.Tell(ctx, ask.Question())
		if err == nil {
			for _, c := range history.From(ask, story).Changes {
				if c.Rows[0].What == "removed" && c.TraceID != "" {
					return nil
				}
			}
			err = errors.New("it does not tell that the policy was removed")
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		case <-end:
			return fmt.Errorf("asked the history for 30s: %w", err)
		}
	}
}
