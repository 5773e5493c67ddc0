package bus

import (
	"context"
	"errors"
	"time"
)

// telling follows the log through the stream for one question.
type telling struct {
	h     *History
	q     Question
	s     *Story
	fold  *fold
	marks []mark // after the one that it began with
	begun bool   // From has been reached
	ended bool
}

// follow reads the log from a sequence of the stream on.
func (t *telling) follow(ctx context.Context, from uint64) error {
	err := t.h.scanLog(ctx, from, func(m kept) (bool, error) {
		if !t.q.Until.IsZero() && m.stored.After(t.q.Until) {
			return true, t.beyond(ctx, m)
		}
		if err := t.mend(ctx, m.seq, m.stored); err != nil {
			return true, err
		}
		t.begin(m.stored)
		if past, ok := t.fold.take(m); ok {
			t.note(past)
		}
		return false, nil
	})
	if err != nil {
		return err
	}
	if t.ended {
		return nil
	}
	end := t.q.Until
	if end.IsZero() {
		end = t.s.Kept.Until
	}
	return t.end(ctx, end)
}

// beyond looks at the first message after the end: it shows whether the end is
// in a gap.
func (t *telling) beyond(ctx context.Context, m kept) error {
	if err := t.end(ctx, t.q.Until); err != nil {
		return err
	}
	if t.fold.take(m); len(t.fold.gaps) > len(t.s.Gaps) && t.s.From.After(t.s.Heard) {
		t.s.Certain = false
	}
	t.s.Gaps, t.s.MoreGaps = t.fold.gaps, t.fold.missed
	return nil
}

// end says how things stand at the end of the question.
func (t *telling) end(ctx context.Context, end time.Time) error {
	t.ended = true
	if err := t.mend(ctx, ^uint64(0), end); err != nil {
		return err
	}
	t.begin(end.Add(1))
	t.s.Gaps, t.s.MoreGaps = t.fold.gaps, t.fold.missed
	t.s.Side = listed(t.fold.side)
	t.s.Epoch, t.s.Seq, t.s.Heard = t.fold.at.epoch, t.fold.at.seq, t.fold.heard
	return nil
}

// mend takes the state from a checkpoint that was taken after a gap, before the
// message of a sequence is.
func (t *telling) mend(ctx context.Context, seq uint64, until time.Time) error {
	for !t.fold.certain && len(t.marks) > 0 {
		m := t.marks[0]
		if m.GetAfter() >= seq || m.stored.After(until) && seq == ^uint64(0) {
			return nil
		}
		t.marks = t.marks[1:]
		if m.position().before(t.fold.at) {
			continue // taken before the gap
		}
		rows, err := t.h.rowsAt(ctx, m, t.q.Rows)
		if errors.Is(err, errGone) {
			continue
		}
		if err != nil {
			return err
		}
		t.begin(m.stored)
		if past, ok := t.fold.restore(m.position(), m.stored, rows); ok {
			t.note(past)
		}
	}
	return nil
}

// begin notes the state at From, once all before it has been taken.
func (t *telling) begin(now time.Time) {
	if t.begun || !now.After(t.s.From) {
		return
	}
	t.begun = true
	t.s.Rows, t.s.Certain = listed(t.fold.rows), t.fold.certain
}

func (t *telling) note(p Past) {
	switch {
	case !t.begun:
		t.s.Last = &p
	case len(t.s.Cuts) == maxPasts:
		t.s.More++
	default:
		t.s.Cuts = append(t.s.Cuts, p)
	}
}
