package bus

import (
	"log/slog"
	"time"

	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
)

// applyAnswer makes an answer part of the copy and names its kind.
func (r *Reader) applyAnswer(res repaired) (kind string, err error) {
	a := res.answer
	at := position{a.GetEpoch(), a.GetSeq()}
	r.store.mu.Lock()
	defer r.store.mu.Unlock()
	before := r.store.pos
	switch {
	case a.GetNothing():
		kind = "nothing"
		if before.before(r.heard()) || !r.store.synced {
			return "", errBehind
		}
	case a.GetRange() != nil:
		kind = "range"
		if err := r.applyRange(at.epoch, res.asked, a.GetRange().GetEntries()); err != nil {
			return "", err
		}
		if r.store.pos == before {
			return "", errBehind
		}
	case a.GetManifest() != nil:
		kind = "snapshot"
		if err := r.applySnapshot(at, a.GetManifest(), res); err != nil {
			return "", err
		}
	case a.GetPatch() != nil:
		kind = "patch"
		if err := r.applyPatch(at, a.GetPatch()); err != nil {
			return "", err
		}
	default:
		return "", errBehind
	}
	r.heardFrom(res.came, time.Duration(a.GetAgeNs()))
	return kind, nil
}

// heardFrom notes what a peer said of the writer.
func (r *Reader) heardFrom(came time.Time, age time.Duration) {
	at := came.Add(-max(0, age)).UnixNano()
	if at > r.heardAt.Load() {
		r.heardAt.Store(at)
	}
}

// applyRange applies past cuts of one epoch. The store's lock is held.
func (r *Reader) applyRange(epoch uint64, asked position, entries []*busv1.LogEntry) error {
	var parts [][]byte
	for _, e := range entries {
		if len(parts) >= maxParts {
			return errBody
		}
		parts = append(parts, e.GetBody())
		if e.GetMore() {
			continue
		}
		at, whole := position{epoch, e.GetSeq()}, parts
		parts = nil
		// A new epoch follows only what the copy was when it asked: an old
		// leader's batch may have come since.
		follows := at.seq == r.store.pos.seq+1 &&
			(epoch == r.store.pos.epoch || epoch > r.store.pos.epoch && r.store.pos == asked)
		if !follows || epoch < r.heard().epoch {
			continue // applied meanwhile, or of no use any more
		}
		if !r.applyCut(at, whole, e.GetTraceparent()) {
			return errBody
		}
		r.saw(at)
	}
	return nil
}

// applyPatch puts the rows that differed in the place of the copy's. Whether
// that was all, the next beacon says. The store's lock is held.
func (r *Reader) applyPatch(at position, p *busv1.Patch) error {
	s, st := &r.run, r.store
	if !s.corrupt || at.epoch != st.pos.epoch || st.pos.before(at) {
		return errBehind
	}
	span := startApply(r.t.Cluster(), "", at, len(p.GetRows()))
	defer span.End()
	s.heals++
	s.healedAt = r.cfg.Now()
	if err := st.patch(at, p, span.SpanContext()); err != nil {
		return err
	}
	s.corrupt = false
	r.metrics.position(st.pos, st)
	return nil
}

// applySnapshot puts a snapshot under what has been applied. The store's lock
// is held.
func (r *Reader) applySnapshot(at position, m *busv1.Manifest, res repaired) error {
	s, st := &r.run, r.store
	span := startApply(r.t.Cluster(), "", at, len(res.state))
	defer span.End()
	switch {
	case !st.synced || st.pos.before(at):
		if at.epoch < r.heard().epoch && st.synced {
			return errBehind
		}
		if key := m.GetDigestKey(); len(key) == digestKeySize {
			st.rekey([digestKeySize]byte(key))
		}
		st.start(at, res.state, res.pieces, span.SpanContext())
	case s.corrupt && at.epoch == st.pos.epoch:
		later, err := st.overlay(at, res.state)
		if err != nil {
			return err
		}
		st.mend(later, span.SpanContext())
	default:
		return errBehind
	}
	r.metrics.position(st.pos, st)
	r.saw(st.pos)
	s.corrupt = false
	if res.reason == busv1.Reason_REASON_DIGEST {
		s.heals++
		s.healedAt = r.cfg.Now()
	}
	if st.pos == at && len(m.GetDigestKey()) == digestKeySize {
		if bad := st.mismatches(m.GetSums()); len(bad) > 0 && st.key == [digestKeySize]byte(m.GetDigestKey()) {
			s.corrupt = true
			s.heals = max(s.heals, 1)
			s.healedAt = r.cfg.Now()
			r.metrics.mismatch(bad)
			slog.Warn("snapshot differs from its own manifest", "cluster", r.t.Cluster(), "peer", m.GetPeer(), "tables", len(bad))
		}
	}
	return nil
}

// applyHeld applies the cuts that follow what is there.
func (r *Reader) applyHeld() {
	r.store.mu.Lock()
	defer r.store.mu.Unlock()
	defer func() { r.metrics.heldBytes.Set(float64(r.run.held.bytes)) }()
	if !r.store.synced {
		return
	}
	for {
		at, a, ok := r.run.held.after(r.store.pos)
		if !ok {
			break
		}
		if !r.applyCut(at, a.parts, a.trace) {
			return
		}
	}
	r.run.held.drop(r.store.pos)
}

// applyCut decodes and applies one cut; false means that it can't be read, and
// that a snapshot is needed. The store's lock is held.
func (r *Reader) applyCut(at position, parts [][]byte, parent string) bool {
	c := cut{at: at, entry: entry{seq: at.seq, parts: parts, trace: parent}}
	for _, p := range parts {
		raw, err := unpack(p)
		var changes []Change
		var observed uint64
		if err == nil {
			changes, observed, err = decodeChanges(raw)
		}
		if err != nil {
			r.metrics.malformed.Inc()
			r.run.corrupt, r.run.bad = true, nil
			slog.Warn("log message could not be read", "cluster", r.t.Cluster(), "epoch", at.epoch, "seq", at.seq, "error", err)
			return false
		}
		c.changes = append(c.changes, r.store.only.of(changes)...)
		if observed != 0 {
			c.observed = time.Unix(0, int64(observed))
		}
	}
	c.entry = r.store.only.past(c.entry, c.changes)
	span := startApply(r.t.Cluster(), parent, at, len(c.changes))
	c.trace = span.SpanContext()
	r.store.apply(c)
	span.End()
	r.metrics.position(at, r.store)
	if !c.observed.IsZero() {
		lag := max(0, r.cfg.Now().Sub(c.observed))
		r.lag.Store(int64(lag))
		r.metrics.lag.Observe(lag.Seconds())
	}
	return true
}
