package history

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/weftmesh/weft/tools/weft/internal/plain"
)

// stamp is a moment in the time zone of whoever looks, to the millisecond.
func stamp(t time.Time) string { return t.Local().Format("2006-01-02 15:04:05.000") }

// JSON is the answer for programs.
func JSON(a Answer) (string, error) {
	text, err := json.MarshalIndent(a, "", "  ")
	if err != nil {
		return "", fmt.Errorf("writing the history: %w", err)
	}
	return string(text) + "\n", nil
}

// Text is the answer for a person.
func Text(a Answer) string {
	var b strings.Builder
	object := a.Kind + " " + plain.Name(strings.TrimPrefix(a.Namespace+"/"+a.Name, "/"))
	if a.at {
		fmt.Fprintf(&b, "%s at %s\n", object, stamp(a.From))
		state(&b, a)
	} else {
		fmt.Fprintf(&b, "%s from %s until %s\n", object, stamp(a.From), stamp(a.Until))
		story(&b, a)
	}
	for i, n := range a.Notes {
		if i == 0 {
			b.WriteByte('\n')
		}
		b.WriteString("note: " + n + "\n")
	}
	return b.String()
}

// state tells one moment.
func state(b *strings.Builder, a Answer) {
	switch {
	case a.Last != nil:
		fmt.Fprintf(b, "last change: %s\n", when(*a.Last))
	default:
		fmt.Fprintf(b, "not changed since the checkpoint of %s, nor known of before\n", stamp(a.Checkpoint))
	}
	if !a.Certain {
		b.WriteString("doubtful: the history has a gap before this moment, and cuts in it may have changed it\n")
	}
	for _, g := range gapsAround(a) {
		b.WriteString(gap(g) + "\n")
	}
	b.WriteByte('\n')
	if !a.Exists {
		b.WriteString("It did not exist.\n")
		return
	}
	for i, r := range a.Rows {
		if len(a.Rows) > 1 {
			if i > 0 {
				b.WriteByte('\n')
			}
			fmt.Fprintf(b, "%s %s\n", r.Table, plain.Name(r.Key))
		}
		leaves := flat(r.Fields)
		for _, path := range slices.SortedFunc(maps.Keys(leaves), natural) {
			fmt.Fprintf(b, "  %s: %s\n", plain.Name(path), plain.Name(leaves[path]))
		}
	}
}

// gapsAround are those that bear on the moment.
func gapsAround(a Answer) []Gap {
	if a.Certain {
		return nil
	}
	return a.Gaps
}

// story tells what happened, gaps in their places.
func story(b *strings.Builder, a Answer) {
	there := "It did not exist at the beginning."
	if a.Exists {
		there = "It existed at the beginning; --at shows how it was."
	}
	b.WriteString(there)
	if !a.Certain {
		b.WriteString(" That is doubtful: the history has a gap before.")
	}
	b.WriteString("\n")
	if len(a.Changes) == 0 && len(a.Gaps) == 0 {
		b.WriteString("Nothing of it changed.\n")
		return
	}
	b.WriteByte('\n')
	w := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "TIME\tOBSERVED\tEPOCH/SEQ\tTRACE\tCHANGE")
	gaps := a.Gaps
	for _, c := range a.Changes {
		for len(gaps) > 0 && !gaps[0].Until.After(c.Stored) {
			fmt.Fprintf(w, "%s\t\t\t\t%s\n", stamp(gaps[0].From), gap(gaps[0]))
			gaps = gaps[1:]
		}
		change(w, c)
	}
	for _, g := range gaps {
		fmt.Fprintf(w, "%s\t\t\t\t%s\n", stamp(g.From), gap(g))
	}
	_ = w.Flush() // a strings.Builder takes everything
	if a.MoreGaps > 0 {
		fmt.Fprintf(b, "and %d more gaps\n", a.MoreGaps)
	}
}

// mostFields are shown of one row's change; JSON has all.
const mostFields = 40

func change(w *tabwriter.Writer, c Change) {
	observed, trace := "-", "-"
	if c.Observed != nil {
		observed = c.Observed.Local().Format("15:04:05.000")
	}
	if c.TraceID != "" {
		trace = c.TraceID
	}
	head := fmt.Sprintf("%s\t%s\t%s/%s\t%s", stamp(c.Stored), observed, strconv.FormatUint(c.Epoch, 10), strconv.FormatUint(c.Seq, 10), trace)
	line := func(text string) {
		fmt.Fprintf(w, "%s\t%s\n", head, text)
		head = "\t\t\t"
	}
	if c.Found {
		line("found by a checkpoint; it happened in the gap before")
	}
	for _, r := range c.Rows {
		line(r.What + " " + r.Table + " " + plain.Name(r.Key))
		if r.What == "removed" {
			continue
		}
		for i, f := range r.Fields {
			if i == mostFields {
				line(fmt.Sprintf("  and %d more fields", len(r.Fields)-i))
				break
			}
			line("  " + field(f, r.What == "created"))
		}
	}
}

func field(f Field, created bool) string {
	path := plain.Name(f.Path)
	switch {
	case f.Before == nil && !created:
		return path + ": (none) -> " + plain.Name(*f.After)
	case f.Before == nil:
		return path + ": " + plain.Name(*f.After)
	case f.After == nil:
		return path + ": " + plain.Name(*f.Before) + " -> (none)"
	}
	return path + ": " + plain.Name(*f.Before) + " -> " + plain.Name(*f.After)
}

func gap(g Gap) string {
	text := fmt.Sprintf("GAP until %s: cuts after %d/%d and before %d/%d are not kept", stamp(g.Until), g.AfterEpoch, g.AfterSeq, g.BeforeEpoch, g.BeforeSeq)
	if g.Closed != nil {
		return text + "; certain again from " + stamp(*g.Closed)
	}
	return text + "; no checkpoint since"
}

func when(c Change) string {
	text := stamp(c.Stored)
	if c.Observed != nil {
		text += ", observed " + c.Observed.Local().Format("15:04:05.000")
	}
	text += fmt.Sprintf(", epoch %d, sequence %d", c.Epoch, c.Seq)
	if c.TraceID != "" {
		text += ", trace " + c.TraceID
	}
	if c.Found {
		text += ", found by a checkpoint after a gap"
	}
	return text
}
