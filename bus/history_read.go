package bus

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
)

var (
	// ErrNoHistory means that the log is not kept: no stream is there, or nobody
	// keeps one.
	ErrNoHistory = errors.New("no history of the log is kept")
	// ErrBeforeHistory means that what was asked for is older than what is kept.
	ErrBeforeHistory = errors.New("before the first moment that the history knows")
)

const (
	// pageMessages and pageBytes bound one answer of the stream.
	pageMessages = 1024
	pageBytes    = 4 << 20
	// pageWait is by progress: how long the stream may be silent.
	pageWait = 5 * time.Second
	// maxPasts bounds the cuts of one answer.
	maxPasts = 10_000
	// maxMarks bounds the checkpoints that are looked at: one a minute for a month.
	maxMarks = 50_000
)

// Kept says what the history holds.
type Kept struct {
	// Since is the first moment that can be asked about: that of the oldest
	// checkpoint. It is zero when there is none.
	Since time.Time
	// Until is when the last message was taken; the log speaks each second.
	Until time.Time
	Bytes uint64
	// MaxAge and MaxBytes are its bounds.
	MaxAge   time.Duration
	MaxBytes int64
}

// Question asks what happened to some rows.
type Question struct {
	Rows []Selection
	// Since is the moment from which on changes are told. Until is the last one;
	// zero means now. Both are times at which the stream took messages.
	Since, Until time.Time
}

// Story is the history's answer.
type Story struct {
	Kept Kept
	// From is the moment that Rows are of: the question's Since, or the first
	// that is known if that is later.
	From time.Time
	// Rows are what there was at From, in order.
	Rows []Change
	// Side are the rows of side selections, of all times that were looked at.
	Side []Change
	// Last is the cut that made Rows what they are; nil when that was before
	// Checkpoint, from which the history was followed.
	Last       *Past
	Checkpoint time.Time
	// Certain says that no gap makes Rows doubtful.
	Certain bool
	// Cuts are what changed after From, the oldest first. More counts those that
	// are not listed.
	Cuts []Past
	More int
	// Gaps are what the history lacks between Checkpoint and the question's end.
	// MoreGaps counts those that are not listed.
	Gaps     []Gap
	MoreGaps int
	// Epoch, Seq and Heard say how far the log is known.
	Epoch, Seq uint64
	Heard      time.Time
}

// History reads what a stream has kept of a cluster's log. It changes nothing,
// and leaves nothing at the server.
type History struct {
	asker
	names archive
	// Progress, if not nil, is told how many messages were read; it must not block.
	Progress func(messages int)
}

// asker gets many answers to one question; the NATS driver does.
type asker interface {
	// askMany sends data to subject and hands each message of the answer to each
	// until that says so.
	askMany(ctx context.Context, subject string, data []byte, each func(Message) (done bool, err error)) error
	Request(ctx context.Context, subject string, data []byte) ([]byte, error)
	Cluster() string
}

// OpenHistory makes a reader of the history that is kept in a JetStream domain;
// an empty one means the bus's own servers. Nothing is asked yet.
func OpenHistory(t Transport, domain string) (*History, error) {
	a, ok := t.(asker)
	if !ok {
		return nil, fmt.Errorf("opening the history: this kind of bus has none: %w", ErrNoHistory)
	}
	return &History{asker: a, names: archiveOf(a.Cluster(), domain)}, nil
}

// mark is a checkpoint of the stream.
type mark struct {
	*busv1.Checkpoint
	seq    uint64
	stored time.Time
}

func (m mark) position() position { return position{m.GetEpoch(), m.GetSeq()} }

// Tell answers a question. A question about before the first moment that is
// known gets what there is from that moment on; From says so.
func (h *History) Tell(ctx context.Context, q Question) (Story, error) {
	info, marks, err := h.survey(ctx)
	if err != nil {
		return Story{}, fmt.Errorf("asking the history: %w", err)
	}
	s := Story{Kept: keptOf(info, marks)}
	first := baseOf(marks, q.Since)
	f := newFold(q.Rows)
	for {
		if first < 0 {
			return s, fmt.Errorf("asking the history: it holds no complete checkpoint: %w", ErrBeforeHistory)
		}
		var rows []Change
		if rows, err = h.rowsAt(ctx, marks[first], q.Rows); err == nil {
			f.restore(marks[first].position(), marks[first].stored, rows)
			break
		}
		if !errors.Is(err, errGone) {
			return s, fmt.Errorf("asking the history: %w", err)
		}
		// It was dropped while we looked, or never came whole: the next one, or
		// the one before.
		marks = slices.Delete(marks, first, first+1)
		s.Kept = keptOf(info, marks)
		first = baseOf(marks, q.Since)
	}
	base := marks[first]
	s.Checkpoint, s.From = base.stored, q.Since
	if base.stored.After(q.Since) {
		s.From = base.stored
	}
	f.heard = base.stored
	t := telling{h: h, q: q, s: &s, fold: f, marks: marks[first+1:]}
	if err := t.follow(ctx, base.GetAfter()+1); err != nil {
		return s, fmt.Errorf("asking the history: %w", err)
	}
	return s, nil
}

// baseOf is the last checkpoint that was there at a moment; the first if none
// was.
func baseOf(marks []mark, at time.Time) int {
	base := -1
	for i, m := range marks {
		if base < 0 || !m.stored.After(at) {
			base = i
		}
	}
	return base
}

func keptOf(info streamInfo, marks []mark) Kept {
	k := Kept{Until: info.State.Until, Bytes: info.State.Bytes, MaxAge: time.Duration(info.Config.MaxAge), MaxBytes: info.Config.MaxBytes}
	if len(marks) > 0 {
		k.Since = marks[0].stored
	}
	return k
}
