package bus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
)

const (
	// keepEvery is how soon a history that is not kept is found out.
	keepEvery = 5 * time.Second
	// keepWait bounds one question to JetStream.
	keepWait = 3 * time.Second
	// chunkEvery spreads a checkpoint: it shares the log's connection, and 150,000
	// pods make some 25 chunks of up to 435 KiB.
	chunkEvery = 100 * time.Millisecond
)

// told counts what a writer said on the log, for who counts what was kept.
type told struct{ messages, bytes, holes atomic.Uint64 }

// Keeper has the log kept: it makes the stream, watches that it takes what is
// said, and adds checkpoints. It works only while its writer leads. Nothing
// waits for it, and all that it finds wrong costs the history alone.
type Keeper struct {
	t     Transport
	w     *Writer
	cfg   HistoryConfig
	names archive
	// How often it looks; how long it waits between two chunks and two checkpoints.
	every, pause, space time.Duration

	up, bytes, since prometheus.Gauge
	lost, points     prometheus.Counter

	// said counts the messages of checkpoints.
	said  uint64
	mem   keeping
	state atomic.Pointer[busv1.KeptHistory]
}

// NewKeeper makes a keeper of what w writes. Nothing happens until Run.
func NewKeeper(t Transport, w *Writer, cfg HistoryConfig) *Keeper {
	reg := registererOf(t, nil)
	gauge := func(name, help string) prometheus.Gauge {
		return register(reg, prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "weft_bus_history_" + name, Help: help}, []string{"cluster"})).WithLabelValues(t.Cluster())
	}
	counter := func(name, help string) prometheus.Counter {
		return register(reg, prometheus.NewCounterVec(prometheus.CounterOpts{Name: "weft_bus_history_" + name, Help: help}, []string{"cluster"})).WithLabelValues(t.Cluster())
	}
	return &Keeper{
		t: t, w: w, cfg: cfg, names: archiveOf(t.Cluster(), cfg.Domain), every: keepEvery, pause: chunkEvery, space: checkpointSpace,
		up:     gauge("up", "1 while the stream of the history takes what this process says on the log; 0 also where another process writes it."),
		bytes:  gauge("bytes", "Bytes that the history holds."),
		since:  gauge("since_seconds", "Unix time of the oldest message that the history holds."),
		lost:   counter("lost_messages_total", "Messages of the log that the history did not get."),
		points: counter("checkpoints_total", "Checkpoints written to the history."),
	}
}

// Kept is how the history is kept now; nil where this process does not write the
// log.
func (k *Keeper) Kept() *busv1.KeptHistory { return k.state.Load() }

// Run keeps the history until ctx ends.
func (k *Keeper) Run(ctx context.Context) error {
	tick := time.NewTicker(k.every)
	defer tick.Stop()
	for {
		if epoch := k.w.epoch(); epoch == 0 {
			k.mem = keeping{}
			k.up.Set(0)
			k.state.Store(nil)
		} else if err := k.look(ctx, epoch); err != nil && ctx.Err() == nil {
			k.report(&busv1.KeptHistory{Problem: problemOf(err), Lost: k.mem.lost})
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// look compares what the stream has with what it should, and adds a checkpoint
// when one is due.
func (k *Keeper) look(ctx context.Context, epoch uint64) error {
	before := k.sent()
	info, err := k.ensure(ctx)
	if err != nil {
		return err
	}
	lost := k.mem.look(look{
		now: time.Now(), epoch: epoch, created: info.Created,
		sentBefore: before, sentAfter: k.sent(), last: info.State.Last,
		bytes: k.w.told.bytes.Load(), holes: k.w.told.holes.Load(),
	})
	k.lost.Add(float64(lost))
	now := &busv1.KeptHistory{Kept: lost == 0 && !k.mem.stalled, Bytes: info.State.Bytes, Lost: k.mem.lost}
	switch { // without numbers, which would make each look a new problem
	case k.mem.stalled:
		now.Problem = "the stream is there and takes nothing: its server may lack room, or not be connected to the log's"
	case lost > 0:
		now.Problem = "messages of the log did not arrive"
	}
	if !info.State.Since.IsZero() && info.State.Last >= info.State.First && info.State.Bytes > 0 {
		now.SinceNs = info.State.Since.UnixNano()
	}
	if why := k.mem.due(k.cfg, k.space); why != "" {
		size, err := k.checkpoint(ctx, epoch, info.State.Last)
		if err != nil {
			return fmt.Errorf("adding a checkpoint: %w", err)
		}
		k.mem.done(time.Now(), size)
		k.points.Inc()
		slog.Info("checkpoint added to the history", "cluster", k.t.Cluster(), "bytes", size, "reason", why)
	}
	if k.mem.size > 0 && int64(k.mem.size) > k.cfg.bytes()/4 {
		now.Problem = fmt.Sprintf("a checkpoint has %d bytes, and %d are to be kept in all: nothing old can be answered", k.mem.size, k.cfg.bytes())
	}
	k.report(now)
	return nil
}

// sent counts all that the stream should have taken since this process started.
func (k *Keeper) sent() uint64 { return k.w.told.messages.Load() + k.said }

// report tells metrics, presence and, when it changes, the log.
func (k *Keeper) report(now *busv1.KeptHistory) {
	was := k.state.Swap(now)
	k.up.Set(0)
	if now.GetKept() {
		k.up.Set(1)
		k.bytes.Set(float64(now.GetBytes()))
		k.since.Set(float64(now.GetSinceNs()) / 1e9)
	}
	switch {
	case now.GetProblem() != "" && now.GetProblem() != was.GetProblem():
		slog.Warn("history of the log is not kept as it should be; the log itself goes on", "cluster", k.t.Cluster(), "reason", now.GetProblem())
	case now.GetProblem() == "" && (was == nil || was.GetProblem() != ""):
		slog.Info("history of the log is kept", "cluster", k.t.Cluster(), "bytes", now.GetBytes())
	}
}

// ensure has the stream there, with the bounds that it should have.
func (k *Keeper) ensure(ctx context.Context) (streamInfo, error) {
	want := k.names.config(k.cfg)
	info, err := k.ask(ctx, k.names.info, nil)
	switch {
	case errors.Is(err, errNoHistory):
		body, err := json.Marshal(want)
		if err != nil {
			return info, fmt.Errorf("writing the stream's settings: %w", err)
		}
		if info, err = k.ask(ctx, k.names.create, body); err != nil {
			return info, fmt.Errorf("making the stream: %w", err)
		}
	case err != nil:
		return info, err
	case !want.fits(info.Config):
		body, err := want.over(info.whole)
		if err != nil {
			return info, err
		}
		if info, err = k.ask(ctx, k.names.update, body); err != nil {
			return info, fmt.Errorf("changing the stream's bounds: %w", err)
		}
	}
	return info, nil
}

func (k *Keeper) ask(ctx context.Context, subject string, body []byte) (streamInfo, error) {
	ctx, cancel := context.WithTimeout(ctx, keepWait)
	defer cancel()
	answer, err := k.t.Request(ctx, subject, body)
	if err != nil {
		return streamInfo{}, err
	}
	return parseInfo(answer)
}

// problemOf says in words why the history is not kept.
func problemOf(err error) string {
	switch {
	case errors.Is(err, ErrNoPeers):
		return "no JetStream answers: the server that keeps the history is away, or not connected to the bus"
	case errors.Is(err, context.DeadlineExceeded):
		return "the server that keeps the history does not answer, or lets nobody make the stream"
	}
	return err.Error()
}

// checkpoint adds the whole state to the history. after is the stream's last
// sequence as it was told before.
func (k *Keeper) checkpoint(ctx context.Context, epoch, after uint64) (size uint64, err error) {
	rows, ok := k.w.copyAt(epoch)
	if !ok {
		return 0, ErrNotLeading
	}
	snap, err := k.w.store.build(rows)
	if err != nil {
		return 0, fmt.Errorf("encoding %d rows: %w", len(rows.rows), err)
	}
	taken := time.Now()
	c, err := describe(snap, taken, after)
	if err != nil {
		return 0, err
	}
	tick := time.NewTicker(k.pause)
	defer tick.Stop()
	for i, chunk := range snap.chunks {
		if err := k.t.Publish(k.names.chunkSubject(c.GetId(), i), nil, chunk); err != nil {
			return 0, err
		}
		k.said++
		size += uint64(len(chunk))
		select {
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		case <-tick.C:
		}
	}
	if err := k.t.Publish(k.names.mark, nil, packMessage(c)); err != nil {
		return 0, err
	}
	k.said++
	return size, nil
}

// describe is the message that makes chunks a checkpoint.
func describe(snap *snapshot, taken time.Time, after uint64) (*busv1.Checkpoint, error) {
	c := &busv1.Checkpoint{
		Epoch: snap.at.epoch, Seq: snap.at.seq, Id: fmt.Sprintf("%x", taken.UnixNano()),
		After: after, TakenAtNs: taken.UnixNano(), Rows: snap.rows,
	}
	for _, chunk := range snap.chunks {
		raw, err := unpack(chunk)
		if err != nil {
			return nil, err
		}
		changes, _, err := decodeChanges(raw[:firstChange(raw)])
		if err != nil || len(changes) == 0 {
			return nil, fmt.Errorf("reading a chunk: %w", errors.Join(err, errBody))
		}
		c.Chunks = append(c.Chunks, &busv1.ChunkStart{Table: changes[0].Table, Key: changes[0].Key})
	}
	return c, nil
}
