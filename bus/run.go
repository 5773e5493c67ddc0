package bus

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
)

// running is what only the goroutine of Run touches.
type running struct {
	held held
	// corrupt: a digest differed or a body couldn't be read. What is applied
	// meanwhile is kept; the next snapshot goes under it.
	corrupt bool
	// bad are the tables that differed; nil when the fault is not in a table.
	bad      []busv1.Table
	healedAt time.Time
	heals    int
	// resume: messages may have been missed, ask.
	resume  bool
	resumes int
	// active is the reason of the repair under way; 0 when there is none.
	active   busv1.Reason
	attempts int
	// When silence last made it ask or reconnect.
	askedAt, reconnectedAt time.Time
	partial                *download
	done                   chan *repaired
	retry                  *time.Timer
	// waiting: the next try for the reason waitFor is in the timer.
	waiting bool
	waitFor busv1.Reason
}

// While the writer stays silent: how often peers are asked whether they know
// more, and how often the connection is suspected.
const (
	askSilent       = 2 * time.Second
	reconnectSilent = 30 * time.Second
	// packEvery is how often values are looked at that wait to be packed.
	packEvery = time.Second
)

// Run follows the log until ctx ends.
func (r *Reader) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := r.t.Watch(r.event)
	defer stop()
	sub, err := r.t.Subscribe(r.names.log, r.deliver)
	if err != nil {
		return fmt.Errorf("following the log: %w", err)
	}
	defer sub.Stop()
	if err := r.server.start(); err != nil {
		return fmt.Errorf("serving the log: %w", err)
	}
	defer r.server.stop()

	var packing sync.WaitGroup
	packing.Go(func() { r.pack(ctx) })
	defer func() { cancel(); packing.Wait() }()

	s := &r.run
	s.done = make(chan *repaired, 1)
	s.retry = time.NewTimer(0)
	defer s.retry.Stop()
	silence := time.NewTicker(r.cfg.Silence / 3)
	defer silence.Stop()
	for {
		select {
		case <-ctx.Done():
			// A repair under way ends with ctx; waiting for it leaves nothing behind.
			if s.active != 0 {
				<-s.done
				s.active = 0
			}
			return nil
		case <-r.in.ready:
			r.drain()
		case res := <-s.done:
			r.repaired(res)
		case <-s.retry.C:
			s.waiting = false
		case <-silence.C:
			r.checkSilence()
		}
		r.repairIfNeeded(ctx)
	}
}

// pack lets the values rest that have come since, beside what Run does.
func (r *Reader) pack(ctx context.Context) {
	tick := time.NewTicker(packEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			r.store.settle()
		}
	}
}

// deliver runs in the transport's goroutine and must be quick.
func (r *Reader) deliver(m Message) {
	h, err := parseHead(m.Header)
	if err != nil {
		r.in.note(func(n *news) { n.malformed++ })
		return
	}
	r.in.push(item{h, m.Data})
}

func (r *Reader) event(e Event) {
	r.in.note(func(n *news) {
		switch e {
		case Connected:
			n.connected = true
		case Slow:
			n.slow = true
		case Disconnected:
		}
	})
}

// woken tells Run that the store changed under it.
func (r *Reader) woken() { r.in.note(func(n *news) { n.woken = true }) }

// drain handles everything that has come.
func (r *Reader) drain() {
	items, news := r.in.take()
	s := &r.run
	if news.malformed > 0 {
		r.metrics.malformed.Add(float64(news.malformed))
	}
	if news.connected || news.slow {
		s.resume, s.resumes = true, 0
		r.hurry()
	}
	if news.overflow {
		r.metrics.overflows.Inc()
		r.saw(news.lost)
	}
	for _, it := range items {
		r.message(it)
	}
	if news.woken {
		r.server.serve(r.Synced() == nil)
	}
}

// message decides what a log message means, from its header.
func (r *Reader) message(it item) {
	r.store.mu.Lock()
	at := r.store.pos
	r.store.mu.Unlock()
	h := it.head
	if h.epoch < at.epoch || h.epoch < r.heard().epoch {
		r.metrics.oldEpoch.Inc()
		return
	}
	r.heardAt.Store(r.cfg.Now().UnixNano())
	if h.beacon {
		r.saw(h.position)
		if at == h.position {
			r.compare(it)
		}
		return
	}
	if !at.before(h.position) {
		r.metrics.duplicates.Inc()
		return
	}
	switch {
	case !h.more:
		r.saw(h.position)
	case h.prev == (position{}) && h.seq > 0:
		// The rest is on its way; what must be there is what came before.
		r.saw(position{h.epoch, h.seq - 1})
	}
	if r.run.held.bytes > heldBytes {
		r.metrics.overflows.Inc()
		r.run.held.clear()
	}
	if !r.run.held.add(it) {
		r.metrics.duplicates.Inc()
		return
	}
	r.applyHeld()
}

// compare holds the copy against the writer's sums.
func (r *Reader) compare(it item) {
	var b busv1.Beacon
	if err := unpackMessage(it.body, &b); err != nil || len(b.GetDigestKey()) != digestKeySize {
		r.metrics.malformed.Inc()
		return
	}
	r.store.mu.Lock()
	defer r.store.mu.Unlock()
	if !r.store.synced || r.store.pos != it.head.position {
		return
	}
	r.store.rekey([digestKeySize]byte(b.GetDigestKey()))
	bad := r.store.mismatches(b.GetSums())
	r.metrics.countRows(r.store)
	if len(bad) == 0 {
		r.run.heals = 0
		r.run.corrupt = false
		return
	}
	if r.run.corrupt {
		return
	}
	r.run.corrupt, r.run.bad = true, bad
	r.metrics.mismatch(bad)
	for _, t := range bad {
		slog.Warn("table differs from the writer's", "cluster", r.t.Cluster(), "table", tableName(t), "epoch", it.head.epoch, "seq", it.head.seq)
	}
}

// checkSilence asks peers and suspects the connection while nobody speaks.
func (r *Reader) checkSilence() {
	s := &r.run
	now := r.cfg.Now()
	r.server.tidy(now)
	if s.reconnectedAt.IsZero() { // the first look
		s.reconnectedAt = now.Add(r.cfg.Silence - reconnectSilent)
	}
	age := r.age()
	r.metrics.age.Set(age.Seconds())
	if age == 0 && r.heardAt.Load() != 0 {
		r.metrics.stale.Set(0)
		s.reconnectedAt = now.Add(-reconnectSilent)
		return
	}
	r.metrics.stale.Set(1)
	if now.Sub(s.askedAt) >= askSilent {
		s.askedAt = now
		s.resume, s.resumes = true, maxResumes-1
	}
	if now.Sub(s.reconnectedAt) >= reconnectSilent {
		s.reconnectedAt = now
		slog.Warn("log is silent, reconnecting", "cluster", r.t.Cluster(), "age", age)
		r.t.Reconnect()
	}
}
