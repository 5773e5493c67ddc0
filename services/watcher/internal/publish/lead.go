package publish

import (
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/weftmesh/weft/services/kit/obs"
)

// How often a leader asks whether the log is still its own, and how long it must
// have been so for the next ousting to count as the first. Two writers that both
// believe to lead give way for ever longer, up to 32 s, instead of turning every
// reader over each second.
const (
	lookEvery = time.Second
	calm      = 5 * time.Minute
)

// lead begins a leadership: everything named so far is taken first, so that the
// truth is whole.
func (p *Publisher) lead() error {
	for p.src.Changes().Len() > 0 {
		p.apply(p.src.Changes().Take(stepNames))
	}
	p.state.Adopt(p.copied.All(), p.src.Trouble().Hides)
	truth := p.state.Truth()
	if err := p.log.Lead(p.term.ctx, truth); err != nil {
		p.meter.failures.Inc()
		return err
	}
	p.state.Published()
	p.led, p.fails, p.ledAt = true, 0, time.Now()
	now := p.term
	p.leads.Store(&now)
	if !p.term.holds() {
		// Lost in between: Elect's Resign may have come before Lead.
		p.resign()
	}
	p.tell(p.src.Trouble())
	p.cfg.Wrote(truth)
	return nil
}

func (p *Publisher) resign() {
	p.led = false
	p.leads.Store(nil)
	p.log.Resign()
}

// giveWay tells whether another writer is alive, which is looked for again after
// a while.
func (p *Publisher) giveWay(now time.Time) bool {
	st := p.copied.Status()
	alive := !st.HeardAt.IsZero() && !st.Stale
	if alive && !p.rival {
		p.logger.Warn("standing by: another watcher writes this log; without a lease, two with -source dir must not share a bus",
			obs.Epoch(st.Epoch))
	}
	p.rival = alive
	if alive {
		p.notBefore = now.Add(lookEvery)
	}
	p.tell(p.src.Trouble())
	return alive
}

// oust gives the log up because another writer has it. Once is everyday: a
// predecessor whose clock was ahead is heard late. More often means two writers.
func (p *Publisher) oust() {
	p.resign()
	p.meter.ousted.Inc()
	if time.Since(p.ledAt) > calm {
		p.ousted = 0
	}
	if p.ousted++; p.ousted > 1 {
		d := time.Second << min(p.ousted-2, maxDoublings)
		p.notBefore = time.Now().Add(d/2 + rand.N(d/2+1)) //nolint:gosec // spreads retries, keeps no secret
	}
	p.logger.Warn("another writer took the log although the lease is held here",
		obs.Count(p.ousted), slog.Duration("leads_again_in", max(0, time.Until(p.notBefore))),
		obs.Reason("a predecessor's clock was ahead, or two watchers with -source dir share the bus"))
}
