package bus

import (
	"log/slog"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
)

const (
	// maxAsks bounds the questions answered at once; others are told "behind"
	// and ask somebody else.
	maxAsks = 64
	// snapshotFresh is how long one snapshot is good enough for whoever asks.
	snapshotFresh = 2 * time.Second
	// snapshotKept is how long after its last use a snapshot may still be pulled.
	snapshotKept = 10 * time.Second
	maxSnapshots = 2
	// A range above a tenth of the rows' raw size costs more than half of what
	// a snapshot would (rows compress about five times), but a small one is
	// always answered.
	rangeShare = 10
	rangeSmall = 256 << 10
	// rangeRaw bounds one answer before compression.
	rangeRaw     = 2 << 20
	rangeEntries = 8192
)

// server answers other peers from the reader's copy.
type server struct {
	r    *Reader
	busy chan struct{}

	mu   sync.Mutex // subscriptions and snapshots
	ask  Subscription
	pull Subscription
	kept []*snapshot

	building sync.Mutex // single flight
}

func newServer(r *Reader) *server { return &server{r: r, busy: make(chan struct{}, maxAsks)} }

// start begins to serve chunks. Asking begins with serve.
func (s *server) start() error {
	if s.r.store.only != nil {
		return nil // it has nothing whole to serve
	}
	sub, err := s.r.t.Serve(s.r.names.peer+s.r.t.Peer(), s.r.t.Peer(), s.chunk)
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.pull = sub
	s.mu.Unlock()
	return nil
}

func (s *server) stop() {
	s.serve(false)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pull != nil {
		s.pull.Stop()
	}
	s.kept = nil
}

// serve joins or leaves those who answer asks. Only who is in sync may: a peer
// with a hole would cost the others a round trip. Nor may who keeps only some
// tables: it would hand out a state that lacks the others.
func (s *server) serve(on bool) {
	if s.r.store.only != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case on && s.ask == nil:
		sub, err := s.r.t.Serve(s.r.names.ask, askGroup, s.asked)
		if err != nil {
			slog.Warn("serving the log failed", "cluster", s.r.t.Cluster(), "error", err)
			return
		}
		s.ask = sub
	case !on && s.ask != nil:
		s.ask.Stop()
		s.ask = nil
	}
}

// asked runs in the transport's goroutine.
func (s *server) asked(q Request) {
	select {
	case s.busy <- struct{}{}:
	default:
		s.respond(q, &busv1.Answer{Kind: &busv1.Answer_Behind{Behind: true}})
		return
	}
	go func() {
		defer func() { <-s.busy }()
		var ask busv1.Ask
		if err := proto.Unmarshal(q.Data, &ask); err != nil {
			s.r.metrics.malformed.Inc()
			return
		}
		s.respond(q, s.answer(&ask))
	}()
}

func (s *server) respond(q Request, a *busv1.Answer) {
	kind := "behind"
	switch a.GetKind().(type) {
	case *busv1.Answer_Nothing:
		kind = "nothing"
	case *busv1.Answer_Range:
		kind = "range"
	case *busv1.Answer_Manifest:
		kind = "snapshot"
	case *busv1.Answer_Patch:
		kind = "patch"
	}
	s.r.metrics.served.WithLabelValues(kind).Inc()
	_ = q.Respond(packMessage(a)) // the asker asks again
}

// answer decides what a reader is told.
func (s *server) answer(ask *busv1.Ask) *busv1.Answer {
	st := s.r.store
	have := position{ask.GetEpoch(), max(ask.GetNextSeq(), 1) - 1}
	least := position{ask.GetMinEpoch(), ask.GetMinSeq()}
	if least.before(have) {
		least = have
	}
	st.mu.Lock()
	if st.pos.before(least) && s.r.leads() && least.epoch < s.farthest() {
		// Readers follow an epoch above this leader's and drop all it says: its
		// predecessor's clock was ahead. It must lead again.
		s.r.saw(position{least.epoch, 0})
	}
	a := &busv1.Answer{Epoch: st.pos.epoch, Seq: st.pos.seq}
	if !s.r.leads() {
		a.AgeNs = int64(s.r.sinceHeard())
	}
	if !st.synced || st.pos.before(least) || ask.GetPeer() == s.r.t.Peer() {
		st.mu.Unlock()
		a.Kind = &busv1.Answer_Behind{Behind: true}
		return a
	}
	switch {
	case ask.GetReason() == busv1.Reason_REASON_DIGEST:
		if ask.GetEpoch() != st.pos.epoch {
			break // the sums are of another key
		}
		if p := st.patchFor(ask.GetDiffering()); p != nil {
			a.Kind = &busv1.Answer_Patch{Patch: p}
			st.mu.Unlock()
			if len(packMessage(a)) <= MaxPayload {
				return a
			}
			st.mu.Lock()
		}
	default:
		if have == st.pos {
			st.mu.Unlock()
			a.Kind = &busv1.Answer_Nothing{Nothing: true}
			return a
		}
		if entries := st.since(have); len(entries) > 0 {
			st.mu.Unlock()
			if rng := rangeOf(entries); rng != nil {
				a.Kind = &busv1.Answer_Range{Range: rng}
				return a
			}
			st.mu.Lock()
		}
	}
	st.mu.Unlock()
	snap, err := s.snapshot(have, least, ask.GetReason())
	if err != nil {
		slog.Error("building a snapshot failed", "cluster", s.r.t.Cluster(), "error", err)
		a.Kind = &busv1.Answer_Behind{Behind: true}
		return a
	}
	a.Epoch, a.Seq = snap.at.epoch, snap.at.seq
	a.Kind = &busv1.Answer_Manifest{Manifest: snap.manifest(s.r.t.Peer())}
	return a
}

// farthest bounds the epochs that an ask can make a leader believe in, a day of
// clock error, so that nonsense can't use up the numbers.
func (s *server) farthest() uint64 {
	return uint64(s.r.cfg.Now().Add(24*time.Hour).UnixMilli()) + maxStep
}

// since gives the cuts after a position, if the ring has them and they are
// worth sending.
func (s *store) since(have position) []entry {
	if have.epoch != s.pos.epoch && (have != s.prev || have == position{}) {
		return nil
	}
	entries, left, ok := s.ring.from(have.seq+1, rangeEntries)
	if !ok || left > max(rangeSmall, s.bytes/rangeShare) {
		return nil
	}
	return entries
}

// rangeOf makes an answer of as many whole cuts as fit a message; nil when not
// even the first does.
func rangeOf(entries []entry) *busv1.Range {
	n, size := 0, 0
	for n < len(entries) && (n == 0 || size+entries[n].size <= rangeRaw) {
		size += entries[n].size
		n++
	}
	for ; n > 0; n /= 2 {
		rng := &busv1.Range{}
		for _, e := range entries[:n] {
			for i, body := range e.parts {
				rng.Entries = append(rng.Entries, &busv1.LogEntry{
					Seq: e.seq, Body: body, Traceparent: e.trace, Part: uint32(i), More: i < len(e.parts)-1,
				})
			}
		}
		// The answer's own fields take less than 64 bytes.
		if len(packMessage(&busv1.Answer{Kind: &busv1.Answer_Range{Range: rng}}))+64 <= MaxPayload {
			return rng
		}
	}
	return nil
}
