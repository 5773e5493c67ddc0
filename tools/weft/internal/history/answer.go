package history

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/weftmesh/weft/bus"
)

// Answer is what the history says of one object, ready to be written.
type Answer struct {
	Cluster   string `json:"cluster"`
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	Kept      Kept   `json:"kept"`
	// From is the moment that Rows are of, Until the last one that was asked for.
	From  time.Time `json:"from"`
	Until time.Time `json:"until"`
	// Exists says whether there was such an object at From.
	Exists bool `json:"exists"`
	// Certain says that no gap of the history makes this doubtful.
	Certain bool  `json:"certain"`
	Rows    []Row `json:"rows"`
	// Last is the change that made Rows what they are; null when it was before
	// Checkpoint.
	Last       *Change   `json:"lastChange"`
	Checkpoint time.Time `json:"checkpoint"`
	// Changes are what happened after From. MoreCuts counts cuts of the log that
	// were too many to be looked at.
	Changes  []Change `json:"changes"`
	MoreCuts int      `json:"moreCuts"`
	Gaps     []Gap    `json:"gaps"`
	MoreGaps int      `json:"moreGaps"`
	Notes    []string `json:"notes"`

	at bool // one moment was asked for
}

// Kept is what the history holds.
type Kept struct {
	Since    time.Time `json:"since"`
	Until    time.Time `json:"until"`
	Bytes    uint64    `json:"bytes"`
	MaxAge   string    `json:"maxAge"`
	MaxBytes int64     `json:"maxBytes"`
}

// Row is one row of the object as it was.
type Row struct {
	Table  string         `json:"table"`
	Key    string         `json:"key"`
	Fields map[string]any `json:"fields"`
}

// Change is one cut of the log that changed the object.
type Change struct {
	// Stored is when the history took it, Observed when the watcher saw the first
	// of its causes.
	Stored   time.Time  `json:"stored"`
	Observed *time.Time `json:"observed"`
	Epoch    uint64     `json:"epoch"`
	Seq      uint64     `json:"seq"`
	TraceID  string     `json:"traceID,omitempty"`
	// Found says that it happened somewhere in the gap before.
	Found bool        `json:"foundByCheckpoint"`
	Rows  []RowChange `json:"rows"`
}

// RowChange is what happened to one row.
type RowChange struct {
	Table string `json:"table"`
	Key   string `json:"key"`
	// What is created, changed or removed.
	What   string  `json:"what"`
	Fields []Field `json:"fields"`
}

// Gap is a stretch of the log that the history does not have.
type Gap struct {
	From        time.Time  `json:"from"`
	Until       time.Time  `json:"until"`
	AfterEpoch  uint64     `json:"afterEpoch"`
	AfterSeq    uint64     `json:"afterSeq"`
	BeforeEpoch uint64     `json:"beforeEpoch"`
	BeforeSeq   uint64     `json:"beforeSeq"`
	Closed      *time.Time `json:"closed"`
}

// Ask is what a person wants to know.
type Ask struct {
	Object  Object
	Cluster string
	// At is one moment; otherwise Since and Until bound what is told. Until is
	// zero for now.
	At, Since, Until time.Time
	Now              time.Time
}

// Question is what the history is asked for it.
func (a Ask) Question() bus.Question {
	if !a.At.IsZero() {
		return bus.Question{Rows: a.Object.Rows(), Since: a.At, Until: a.At}
	}
	return bus.Question{Rows: a.Object.Rows(), Since: a.Since, Until: a.Until}
}

// quiet is how long the history may lack news, of which there are some each
// second, before that is worth a word.
const quiet = 10 * time.Second

// From makes the answer of a story.
func From(a Ask, s bus.Story) Answer {
	out := Answer{
		Cluster: a.Cluster, Kind: a.Object.Kind.Name, Namespace: a.Object.Namespace, Name: a.Object.Name,
		Kept: Kept{s.Kept.Since, s.Kept.Until, s.Kept.Bytes, s.Kept.MaxAge.String(), s.Kept.MaxBytes},
		From: s.From, Until: cmp.Or(a.At, a.Until, a.Now), Certain: s.Certain, Checkpoint: s.Checkpoint,
		Rows: []Row{}, Changes: []Change{}, Gaps: []Gap{}, Notes: []string{}, MoreCuts: s.More, MoreGaps: s.MoreGaps, at: !a.At.IsZero(),
	}
	now, side := make(rows), make(rows)
	now.apply(s.Rows)
	side.apply(s.Side)
	is := now.view(side)
	for _, row := range ordered(is) {
		out.Rows = append(out.Rows, Row{tableName(row), row.key, is[row]})
	}
	out.Exists = len(out.Rows) > 0
	if s.Last != nil {
		last := changeOf(*s.Last)
		out.Last = &last
	}
	for _, cut := range s.Cuts {
		now.apply(cut.Changes)
		was := is
		is = now.view(side)
		c := changeOf(cut)
		if c.Rows = compare(was, is); len(c.Rows) > 0 {
			out.Changes = append(out.Changes, c)
		}
	}
	for _, g := range s.Gaps {
		gap := Gap{g.From, g.Until, g.AfterEpoch, g.AfterSeq, g.BeforeEpoch, g.BeforeSeq, nil}
		if !g.Closed.IsZero() {
			gap.Closed = &g.Closed
		}
		out.Gaps = append(out.Gaps, gap)
	}
	out.Notes = append(out.Notes, notes(a, s)...)
	return out
}

func notes(a Ask, s bus.Story) []string {
	var all []string
	if a.At.IsZero() && s.From.After(a.Since) {
		all = append(all, "the history begins at "+stamp(s.From)+"; nothing is known of before.")
	}
	end := cmp.Or(a.At, a.Until, a.Now)
	if end.Sub(s.Heard) > quiet && s.Kept.Until.Sub(s.Heard) < time.Second {
		all = append(all, "the last that the history has of the log is of "+stamp(s.Heard)+"; whether something changed after that is not known. See `weft status`.")
	}
	if s.More > 0 {
		all = append(all, fmt.Sprintf("%d more cuts were not looked at; ask for a shorter time with --since and --until.", s.More))
	}
	return all
}

// changeOf is a cut without its rows.
func changeOf(p bus.Past) Change {
	c := Change{Stored: p.Stored, Epoch: p.Epoch, Seq: p.Seq, TraceID: traceID(p.Trace), Found: p.Found, Rows: []RowChange{}}
	if !p.Observed.IsZero() {
		c.Observed = &p.Observed
	}
	return c
}

// traceID takes the trace's own name out of a W3C traceparent.
func traceID(parent string) string {
	parts := strings.Split(parent, "-")
	if len(parts) != 4 || len(parts[1]) != 32 || strings.Trim(parts[1], "0123456789abcdef") != "" {
		return ""
	}
	return parts[1]
}

// compare gives what differs between two views.
func compare(was, is view) []RowChange {
	var out []RowChange
	both := make(view, len(is))
	for row := range was {
		both[row] = nil
	}
	for row := range is {
		both[row] = nil
	}
	for _, row := range ordered(both) {
		before, had := was[row]
		after, has := is[row]
		c := RowChange{Table: tableName(row), Key: row.key, What: "changed", Fields: differing(before, after)}
		switch {
		case !had:
			c.What = "created"
		case !has:
			c.What = "removed"
		case len(c.Fields) == 0:
			continue
		}
		out = append(out, c)
	}
	return out
}

func ordered(v view) []id {
	return slices.SortedFunc(maps.Keys(v), func(a, b id) int { return cmp.Or(cmp.Compare(a.table, b.table), strings.Compare(a.key, b.key)) })
}

func tableName(row id) string {
	if info, ok := bus.Info(row.table); ok {
		return info.Name
	}
	return fmt.Sprintf("table %d", row.table)
}
