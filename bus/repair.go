package bus

import (
	"context"
	"errors"
	"hash/fnv"
	"log/slog"
	"strconv"
	"time"

	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
)

// Times of asking (BUS.md sections 6 and 7).
const (
	firstBackoff = 50 * time.Millisecond
	// Polling faster than this while everybody is gone only makes noise.
	lastBackoff = 2 * time.Second
	// maxResumes is how often a resume is tried; then the beacon decides.
	maxResumes = 4
	// maxPatches is how often the rows that differ are asked for alone.
	maxPatches = 4
	// A table that differs again right after its repair is a bug, not a fault:
	// heal it ever more slowly.
	healAgain  = 5 * time.Second
	healAtMost = 5 * time.Minute
)

// repaired is the outcome of one try.
type repaired struct {
	reason  busv1.Reason
	started time.Time
	// asked is where the copy stood when it asked.
	asked  position
	answer *busv1.Answer
	// came is when the answer did.
	came time.Time
	// state is the snapshot that the answer's manifest describes.
	state   []Change
	pieces  []*piece
	partial *download
	err     error
}

var errBehind = errors.New("peer is behind")

// repairIfNeeded starts a repair unless one runs or waits.
func (r *Reader) repairIfNeeded(ctx context.Context) {
	s := &r.run
	if s.active != 0 {
		return
	}
	r.store.mu.Lock()
	at, synced := r.store.pos, r.store.synced
	if r.leads() {
		s.resume = false // nobody can know more
	}
	r.store.mu.Unlock()
	reason := r.reason(at, synced)
	if reason == 0 {
		s.attempts = 0
		r.server.serve(synced && !s.corrupt)
		return
	}
	if s.waiting {
		if reason == s.waitFor {
			return
		}
		r.hurry() // that wait was for something else
	}
	if reason == busv1.Reason_REASON_GAP && s.attempts == 0 {
		r.metrics.gaps.Inc()
	}
	// Perhaps not fit to answer others, and not to be asked by itself.
	r.server.serve(false)
	if s.corrupt {
		r.server.forget()
	}
	s.active = reason
	s.attempts++
	ask := &busv1.Ask{Epoch: at.epoch, NextSeq: at.seq + 1, Reason: reason, Peer: r.t.Peer()}
	if reason == busv1.Reason_REASON_DIGEST && s.heals == 0 && s.attempts <= maxPatches {
		// Once; what is still wrong afterwards needs a whole snapshot, and so does
		// a copy that every peer's patch is ahead of.
		r.store.mu.Lock()
		if r.store.pos == at {
			ask.Differing = r.store.differing(s.bad)
		}
		r.store.mu.Unlock()
	}
	if reason != busv1.Reason_REASON_RESUME {
		least := r.heard()
		if least.before(at) {
			least = at
		}
		ask.MinEpoch, ask.MinSeq = least.epoch, least.seq
	}
	partial := s.partial
	s.partial = nil
	done, now := s.done, r.cfg.Now()
	go func() {
		res := r.fetch(ctx, ask, partial)
		res.reason, res.started, res.asked = reason, now, at
		done <- &res
	}()
}

// reason says why the reader must ask now; 0 when it needn't.
func (r *Reader) reason(at position, synced bool) busv1.Reason {
	s := &r.run
	hole := at.before(r.heard())
	switch {
	case !synced:
		return busv1.Reason_REASON_START
	case s.corrupt && r.mayHeal() && (!hole || s.bad == nil):
		return busv1.Reason_REASON_DIGEST
	case hole:
		// Before what differs in a table: a patch is of where a peer stands, and
		// can't be put under what is missing here.
		return busv1.Reason_REASON_GAP
	case s.resume:
		return busv1.Reason_REASON_RESUME
	}
	return 0
}

func (r *Reader) mayHeal() bool {
	s := &r.run
	if s.heals == 0 {
		return true
	}
	wait := min(healAgain<<min(s.heals-1, 10), healAtMost)
	return r.cfg.Now().Sub(s.healedAt) >= wait
}

// fetch asks, and pulls the snapshot if that is the answer.
func (r *Reader) fetch(ctx context.Context, ask *busv1.Ask, old *download) repaired {
	if old.advancing() && r.wants(old, ask) {
		if res := r.pull(ctx, old); res.err == nil || old.advancing() {
			return res
		}
	}
	answer, err := r.ask(ctx, ask)
	if err != nil {
		return repaired{partial: old, err: err}
	}
	came := r.cfg.Now()
	if answer.GetManifest() == nil {
		return repaired{partial: old, answer: answer, came: came}
	}
	d, err := newDownload(answer, came, old)
	if err != nil {
		return repaired{err: err}
	}
	return r.pull(ctx, d)
}

// wants says whether a snapshot that was begun is still of use.
func (r *Reader) wants(d *download, ask *busv1.Ask) bool {
	have, at := position{ask.GetEpoch(), ask.GetNextSeq() - 1}, position{d.answer.GetEpoch(), d.answer.GetSeq()}
	if ask.GetReason() == busv1.Reason_REASON_DIGEST {
		return at == have
	}
	return have.before(at) && at.epoch >= r.heard().epoch
}

func (r *Reader) ask(ctx context.Context, ask *busv1.Ask) (*busv1.Answer, error) {
	ctx, patience := withPatience(ctx)
	defer patience.stop()
	body, err := r.t.Request(ctx, r.names.ask, Encode(ask))
	if err != nil {
		return nil, err
	}
	answer := new(busv1.Answer)
	return answer, unpackMessage(body, answer)
}

func (r *Reader) pull(ctx context.Context, d *download) repaired {
	p := puller{r.t, r.names, r.store.only, readChunk}
	state, err := p.pull(ctx, d)
	res := repaired{answer: d.answer, came: d.came, state: state, pieces: d.pieces, err: err}
	if err != nil && !errors.Is(err, errManifest) {
		res.partial = d
	}
	return res
}

// repaired applies the outcome of a try.
func (r *Reader) repaired(res *repaired) {
	// Run's frame may go on naming it until the next repair: a snapshot of a large
	// cluster would stay with it.
	defer func() { *res = repaired{} }()
	s := &r.run
	s.active = 0
	s.partial = res.partial
	kind, err := "", res.err
	if err == nil {
		kind, err = r.applyAnswer(*res)
	}
	if err != nil {
		r.metrics.failures.WithLabelValues(reasonName(res.reason)).Inc()
		slog.Debug("repairing the log, will ask again", "cluster", r.t.Cluster(), "reason", reasonName(res.reason), "error", err)
		if res.reason == busv1.Reason_REASON_RESUME {
			if s.resumes++; s.resumes >= maxResumes {
				s.resume = false
			}
		}
		// Who has only lost its connection is as good a peer as before.
		r.server.serve(res.reason == busv1.Reason_REASON_RESUME && !s.corrupt)
		r.backOff(res.reason)
		return
	}
	s.attempts = 0
	s.partial = nil
	s.resume = false
	r.metrics.repairs.WithLabelValues(kind).Inc()
	r.metrics.repair.Observe(r.cfg.Now().Sub(res.started).Seconds())
	r.applyHeld()
}

func reasonName(reason busv1.Reason) string {
	switch reason {
	case busv1.Reason_REASON_START:
		return "start"
	case busv1.Reason_REASON_GAP:
		return "gap"
	case busv1.Reason_REASON_DIGEST:
		return "digest"
	case busv1.Reason_REASON_RESUME:
		return "resume"
	}
	return "other"
}

// backOff waits before the next try: doubling, with a jitter that follows from
// the peer's name and the attempt, so that a simulation repeats exactly.
func (r *Reader) backOff(reason busv1.Reason) {
	s := &r.run
	d := min(firstBackoff<<min(max(s.attempts-1, 0), 10), lastBackoff)
	h := fnv.New32a()
	_, _ = h.Write([]byte(r.t.Peer() + strconv.Itoa(s.attempts)))
	d += d / 4 * time.Duration(h.Sum32()%1000) / 1000
	s.waiting, s.waitFor = true, reason
	s.retry.Reset(d)
}

// hurry ends a wait: something happened that makes asking worth while.
func (r *Reader) hurry() {
	s := &r.run
	s.attempts = 0
	s.waiting = false
	s.retry.Stop()
}
