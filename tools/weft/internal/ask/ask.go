// Package ask puts a person's questions to a running mesh over its bus. It
// reads only; nothing it does changes the mesh. Its errors are *say.Problem
// where a person can do something about them.
package ask

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/weftmesh/weft/bus"
	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
)

// Config says where to ask and for how long. It works when empty.
type Config struct {
	Bus  bus.Config
	Wait time.Duration // for the bus; 0 means 3 s
	Hear time.Duration // when no heartbeat answers; 0 means 6 s
	// Options are for a bus that is reached in an unusual way.
	Options []nats.Option
	// Explain says why no bus answers; nil means by knocking at its servers.
	Explain func(error) error
	// HistoryDomain is the JetStream domain of the log's history, where the mesh
	// says which; nil where it does not.
	HistoryDomain *string
}

const (
	defaultWait = 3 * time.Second
	// defaultHear hears every process once: each speaks every 5 s (bus.Announce).
	defaultHear = 6 * time.Second
	again       = 100 * time.Millisecond
	// mostHeard bounds the roll that we make ourselves, as heartbeat bounds its own.
	mostHeard = 4096
)

// Answer is a roll and how it was come by.
type Answer struct {
	Roll    *busv1.Roll
	Cluster string
	At      time.Time // when it was true
	Heard   bool      // listened to here, because no heartbeat answered
}

// Roll asks heartbeat who is alive. When none answers it calls listening with
// the time it will take, and listens itself.
func Roll(ctx context.Context, cfg Config, listening func(time.Duration)) (Answer, error) {
	t, err := bus.Connect(ctx, cfg.Bus, "cli", prometheus.NewRegistry(), cfg.Options...)
	if err != nil {
		return Answer{}, fmt.Errorf("asking the mesh: %w", err)
	}
	defer t.Close()
	return rollFrom(ctx, t, cfg, listening)
}

// rollFrom is Roll on a bus that is there already.
func rollFrom(ctx context.Context, t bus.Transport, cfg Config, listening func(time.Duration)) (Answer, error) {
	roll, err := askFor(ctx, t, cmp.Or(cfg.Wait, defaultWait))
	switch {
	case err == nil:
		return Answer{Roll: roll, Cluster: t.Cluster(), At: time.Now()}, nil
	case errors.Is(err, bus.ErrNoPeers):
		long := cmp.Or(cfg.Hear, defaultHear)
		listening(long)
		roll, err := hear(ctx, t, long)
		return Answer{Roll: roll, Cluster: t.Cluster(), At: time.Now(), Heard: true}, err
	case ctx.Err() != nil:
		return Answer{}, fmt.Errorf("asking the mesh: %w", context.Cause(ctx))
	}
	return Answer{}, cfg.explain(ctx, err)
}

// explain says why no bus answers.
func (c Config) explain(ctx context.Context, err error) error {
	if c.Explain != nil {
		return c.Explain(err)
	}
	return explain(ctx, c.Bus, err)
}

// Reach waits until t is connected, or says why it is not.
func (c Config) Reach(ctx context.Context, t bus.Transport) error {
	waiting, cancel := context.WithTimeout(ctx, cmp.Or(c.Wait, defaultWait))
	defer cancel()
	tick := time.NewTicker(again)
	defer tick.Stop()
	for !t.Connected() {
		select {
		case <-tick.C:
		case <-waiting.Done():
			if ctx.Err() != nil {
				return fmt.Errorf("asking the mesh: %w", context.Cause(ctx))
			}
			return c.explain(ctx, bus.ErrDisconnected)
		}
	}
	return nil
}

// askFor asks until the bus has been away for as long as wait.
func askFor(ctx context.Context, t bus.Transport, wait time.Duration) (*busv1.Roll, error) {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	tick := time.NewTicker(again)
	defer tick.Stop()
	for {
		roll, err := bus.AskRoll(ctx, t)
		if err == nil || errors.Is(err, bus.ErrNoPeers) {
			return roll, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-tick.C:
		}
	}
}

// hear listens for as long and makes a roll of what it heard.
func hear(ctx context.Context, t bus.Transport, long time.Duration) (*busv1.Roll, error) {
	listening, cancel := context.WithTimeout(ctx, long)
	defer cancel()
	type name struct{ service, instance string }
	last := make(map[name]*busv1.RollEntry)
	for p, err := range bus.Hear(listening, t) {
		if err != nil {
			if ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
				break // the time is over, as it should be
			}
			return nil, fmt.Errorf("listening to the mesh: %w", err)
		}
		n := name{p.GetService(), p.GetInstance()}
		if _, known := last[n]; known || len(last) < mostHeard {
			last[n] = &busv1.RollEntry{Presence: p, LastHeardNs: time.Now().UnixNano()}
		}
	}
	roll := &busv1.Roll{}
	for _, e := range last {
		roll.Entries = append(roll.Entries, e)
	}
	return roll, nil
}
