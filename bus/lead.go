package bus

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"time"

	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
)

// lead starts a new epoch. store.mu is held, so no message of the old epoch can
// change the copy between the difference and its publication.
func (w *Writer) lead(ctx context.Context, truth []Change, key [digestKeySize]byte) {
	s := w.store
	changes, skipped := difference(s, truth)
	if skipped != nil {
		slog.Warn("rows left out of the log", "cluster", w.t.Cluster(), "error", skipped)
	}
	// Zero when nothing was read: what others hold is unknown then, so nobody may
	// go on from it; every reader asks, and gets a snapshot as a diff.
	before := s.pos
	epoch := w.epochAfter(max(s.pos.epoch, w.reader.heard().epoch))
	at := position{epoch, s.pos.seq + 1}

	s.leading = epoch
	w.reader.saw(at)
	s.synced = true
	// First, so that every beacon of the epoch has its key.
	s.rekey(key)
	w.publish(ctx, at, before, changes, time.Time{})
	w.beacon()
	w.reader.woken()
	slog.Info("leading the log", "cluster", w.t.Cluster(), "epoch", epoch, "seq", at.seq, "changed", len(changes), "rows", s.count)
}

// epochAfter makes an epoch above a known one and above what a predecessor that
// nobody here has heard of would have taken, as far as clocks agree. Where they
// don't, the step differs between peers, so that two that follow the same
// epoch don't take the same number.
func (w *Writer) epochAfter(known uint64) uint64 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(w.t.Peer()))
	step := 1 + uint64(h.Sum32()%maxStep)
	return max(known+step, uint64(w.cfg.Now().UnixMilli()))
}

const maxStep = 1024

// difference is what turns the store's rows into truth, deletions included.
// Rows that don't fit the bus are left out and keep what others hold of them.
func difference(s *store, truth []Change) (diff []Change, skipped error) {
	stay := make(map[rowID]struct{}, len(truth))
	for _, c := range merged(truth) {
		if c.Value == nil {
			continue
		}
		stay[rowID{c.Table, c.Key}] = struct{}{}
		if err := checkChange(c); err != nil {
			skipped = errors.Join(skipped, err)
			continue
		}
		if s.differs(c) {
			diff = append(diff, c)
		}
	}
	for t, r := range s.tables {
		for key := range r.byKey {
			if _, ok := stay[rowID{t, key}]; !ok {
				diff = append(diff, Change{Table: t, Key: key})
			}
		}
	}
	sortChanges(diff)
	return diff, skipped
}

// merged keeps the last change of each row, in the order in which rows were
// first named.
func merged(changes []Change) []Change {
	at := make(map[rowID]int, len(changes))
	out := make([]Change, 0, len(changes))
	for _, c := range changes {
		id := rowID{c.Table, c.Key}
		if i, ok := at[id]; ok {
			out[i] = c
			continue
		}
		at[id] = len(out)
		out = append(out, c)
	}
	return out
}

// append publishes what is new in changes as the next cut. store.mu is held.
func (w *Writer) append(ctx context.Context, changes []Change, observed time.Time) (uint64, error) {
	s := w.store
	var tooLarge error
	news := changes[:0:0]
	for _, c := range merged(changes) {
		if err := checkChange(c); err != nil {
			tooLarge = errors.Join(tooLarge, err)
			continue
		}
		if s.differs(c) {
			news = append(news, c)
		}
	}
	if len(news) > 0 {
		w.publish(ctx, position{s.leading, s.pos.seq + 1}, position{}, news, observed)
	}
	return s.pos.seq, tooLarge
}

// checkChange refuses what no reader could take; the row keeps its last value.
func checkChange(c Change) error {
	if n := len(c.Key) + len(c.Value); n > MaxRow {
		return fmt.Errorf("row %.80q of %s has %d bytes, more than %d: %w", c.Key, tableName(c.Table), n, MaxRow, ErrTooLarge)
	}
	if c.Table <= busv1.Table_TABLE_UNSPECIFIED {
		return fmt.Errorf("row %.80q: table %d: %w", c.Key, c.Table, errBody)
	}
	return nil
}

// publish applies a cut to the copy, puts it into the ring and sends it, all
// under store.mu: messages leave in the order of their sequence.
func (w *Writer) publish(ctx context.Context, at, prev position, changes []Change, observed time.Time) {
	ctx, span := startPublish(ctx, w.t.Cluster(), at, len(changes))
	defer span.End()
	trace := traceparent(ctx)
	var observedNS int64
	if !observed.IsZero() {
		observedNS = observed.UnixNano()
	}
	parts, size := split(changes, observedNS)
	c := cut{at: at, changes: changes, observed: observed, trace: span.SpanContext()}
	c.entry = entry{seq: at.seq, parts: parts, trace: trace}
	if size > maxCut {
		c.entry.parts = nil
	}
	w.store.apply(c)
	w.reader.metrics.position(at, w.store)
	w.reader.metrics.appended.Inc()
	if size > maxCut {
		w.told.holes.Add(1)
		w.beacon()
		return
	}
	for i, body := range parts {
		h := head{position: at, part: i, more: i < len(parts)-1, prev: prev, trace: trace}
		w.send(h, body)
	}
}

// split writes changes as bodies within the limits of a batch.
func split(changes []Change, observedNS int64) (bodies [][]byte, size int) {
	start, bytes := 0, 0
	for i, c := range changes {
		n := changeSize(c)
		if i > start && (bytes+n > batchBytes || i-start == batchRows) {
			bodies = append(bodies, pack(encodeBatch(changes[start:i], observedNS)))
			start, bytes = i, 0
		}
		bytes += n
		size += n
		if size > maxCut {
			return nil, size
		}
	}
	return append(bodies, pack(encodeBatch(changes[start:], observedNS))), size
}

// beacon says what a reader must hold here. store.mu is held.
func (w *Writer) beacon() {
	s := w.store
	b := &busv1.Beacon{SentAtNs: w.cfg.Now().UnixNano(), DigestKey: s.key[:]}
	b.Sums = s.sums()
	w.send(head{position: s.pos, beacon: true}, packMessage(b))
}

// send loses the message when there is no connection; the ring and the next
// beacon make up for it.
func (w *Writer) send(h head, body []byte) {
	if err := w.t.Publish(w.names.log, h.header(), body); err != nil {
		w.reader.metrics.unsent.Inc()
		w.told.holes.Add(1)
		return
	}
	w.told.messages.Add(1)
	w.told.bytes.Add(uint64(len(body)))
	w.reader.metrics.sent(len(body))
}
