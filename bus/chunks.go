package bus

import (
	"fmt"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
)

// snapshot gives one that reaches at least a position: a fresh one that is
// there, or a new one that everybody who asks meanwhile waits for.
//
// One that is not so fresh does as well when it takes a small range to get from
// it to here, and helps who asks at all. A peer that takes long to build one can
// so give it to who asks again, and a reader that takes long to pull one finds
// it still there.
func (s *server) snapshot(have, least position, reason busv1.Reason) (*snapshot, error) {
	s.building.Lock()
	defer s.building.Unlock()
	now := s.r.cfg.Now()
	if k := s.keeps(now, func(k *snapshot) bool {
		return !k.at.before(least) && now.Sub(k.made) < snapshotFresh ||
			reason != busv1.Reason_REASON_DIGEST && have.before(k.at) && s.r.store.near(k.at)
	}); k != nil {
		return k, nil
	}
	s.r.store.mu.Lock()
	c := s.r.store.copy()
	s.r.store.mu.Unlock()
	snap, err := s.r.store.build(c)
	if err != nil {
		return nil, fmt.Errorf("encoding %d rows: %w", len(c.rows), err)
	}
	now = s.r.cfg.Now()
	snap.made, snap.used = now, now
	s.mu.Lock()
	defer s.mu.Unlock()
	// Who is pulling one slowly should not lose it to who has finished.
	slices.SortFunc(s.kept, func(a, b *snapshot) int { return b.used.Compare(a.used) })
	s.kept = append([]*snapshot{snap}, s.kept...)
	if len(s.kept) > maxSnapshots {
		s.kept = s.kept[:maxSnapshots:maxSnapshots]
	}
	return snap, nil
}

// keeps gives a kept snapshot that will do.
func (s *server) keeps(now time.Time, does func(*snapshot) bool) *snapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range s.kept {
		if does(k) {
			k.used = now
			return k
		}
	}
	return nil
}

// forget drops what was made of a copy that was found to differ.
func (s *server) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kept = nil
}

// near says whether a small range leads from a position to here.
func (s *store) near(at position) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if at.epoch != s.pos.epoch || at.seq >= s.pos.seq {
		return at == s.pos
	}
	_, left, ok := s.ring.from(at.seq+1, 0)
	return ok && left <= rangeSmall
}

// tidy frees snapshots that nobody pulls any more.
func (s *server) tidy(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var keep []*snapshot
	for _, k := range s.kept {
		if now.Sub(k.used) < snapshotKept {
			keep = append(keep, k)
		}
	}
	s.kept = keep
}

// chunk answers one pull.
func (s *server) chunk(q Request) {
	var ask busv1.ChunkRequest
	if err := proto.Unmarshal(q.Data, &ask); err != nil {
		s.r.metrics.malformed.Inc()
		return
	}
	body := s.find(ask.GetSnapshot(), ask.GetChunk())
	if body == nil {
		body = packMessage(&busv1.Chunk{Unknown: true})
	}
	_ = q.Respond(body) // the puller asks again
}

func (s *server) find(id uint64, chunk uint32) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range s.kept {
		if k.id == id && int(chunk) < len(k.chunks) {
			k.used = s.r.cfg.Now()
			return k.chunks[chunk]
		}
	}
	return nil
}
