// Package report writes the answers of checks for a person or a program. The
// forms are those of `linkerd check`, so that what reads one reads the other.
// Text from the cluster never reaches the terminal as a control sequence.
package report

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/weftmesh/weft/services/kit/say"
	"github.com/weftmesh/weft/tools/weft/internal/check/engine"
	"github.com/weftmesh/weft/tools/weft/internal/plain"
)

// Format is how the answers are written.
type Format string

// The formats.
const (
	Table Format = "table" // everything
	Short Format = "short" // only what is not well, and the last line
	JSON  Format = "json"  // one document at the end
)

// String is a part of being a flag's value, as Set and Type are.
func (f *Format) String() string { return string(*f) }

// Set refuses what nothing can write.
func (f *Format) Set(text string) error {
	switch Format(text) {
	case Table, Short, JSON:
		*f = Format(text)
		return nil
	}
	return fmt.Errorf("%q is none of table, json and short", text)
}

// Type is the placeholder in help.
func (f *Format) Type() string { return "format" }

// Writer writes answers as they come. The first error of writing is kept for End.
type Writer struct {
	Out    io.Writer
	Format Format
	Hints  string // what an anchor is appended to
	Colour bool
	// Progress is where a person is told what is waited for; nil is nowhere.
	Progress io.Writer

	category string // whose heading was written last
	waiting  bool   // a line of progress stands on the terminal
	document document
	failed   error
}

// document is the answer as JSON.
type document struct {
	Success    bool        `json:"success"`
	Categories []*category `json:"categories"`
}

type category struct {
	Name   string `json:"categoryName"`
	Checks []item `json:"checks"`
}

type item struct {
	Description string         `json:"description"`
	Hint        string         `json:"hint,omitempty"`
	Error       string         `json:"error,omitempty"`
	Result      engine.Verdict `json:"result"`
}

// Tell takes one answer.
func (w *Writer) Tell(r engine.Result) {
	w.clear()
	if r.Retrying {
		w.wait(r)
		return
	}
	text := Text(r.Err)
	if w.Format == JSON {
		w.keep(r, text)
		return
	}
	if w.Format == Short && r.Err == nil {
		return
	}
	w.heading(r.Category)
	w.line("%s %s\n", w.mark(r.Verdict()), plain.Text(r.Check.Name))
	if r.Err == nil {
		return
	}
	for line := range strings.SplitSeq(text, "\n") {
		w.line("    %s\n", line)
	}
	if hint := w.hint(r.Check.Anchor); hint != "" {
		w.line("    see %s for hints\n", hint)
	}
}

// hint is the address of a hint; an anchor that is an address already stays.
func (w *Writer) hint(anchor string) string {
	if anchor == "" || strings.Contains(anchor, "://") {
		return plain.Text(anchor)
	}
	return w.Hints + anchor
}

func (w *Writer) heading(name string) {
	if name == w.category {
		return
	}
	if w.category != "" {
		w.line("\n")
	}
	w.category = name
	w.line("%s\n%s\n", plain.Text(name), strings.Repeat("-", len([]rune(plain.Text(name)))))
}

func (w *Writer) keep(r engine.Result, text string) {
	one := item{Description: r.Check.Name, Result: r.Verdict()}
	if r.Err != nil {
		one.Error, one.Hint = text, w.hint(r.Check.Anchor)
	}
	all := &w.document.Categories
	if n := len(*all); n == 0 || (*all)[n-1].Name != r.Category {
		*all = append(*all, &category{Name: r.Category})
	}
	last := (*all)[len(*all)-1]
	last.Checks = append(last.Checks, one)
}

// End writes what stands at the end.
func (w *Writer) End(o engine.Outcome) error {
	w.clear()
	if w.Format == JSON {
		w.document.Success = o.Verdict() != engine.Failed
		if w.document.Categories == nil {
			w.document.Categories = []*category{}
		}
		text, err := json.MarshalIndent(w.document, "", "  ")
		if err != nil {
			return fmt.Errorf("encoding the answers: %w", err)
		}
		w.line("%s\n", text)
		return w.failed
	}
	if w.category != "" {
		w.line("\n")
	}
	w.line("Status check results are %s\n", w.mark(o.Verdict()))
	return w.failed
}

// Text is an error in the words and lines of a check.
func Text(err error) string {
	if err == nil {
		return ""
	}
	p, ok := errors.AsType[*say.Problem](err)
	if !ok {
		return plain.Text(err.Error())
	}
	text := p.What
	if p.Why != "" {
		text += ": " + p.Why
	}
	if p.Next != "" {
		text += "\nnext: " + p.Next
	}
	return plain.Text(text)
}

func (w *Writer) mark(v engine.Verdict) string {
	mark, colour := "√", "32"
	switch v {
	case engine.Warned:
		mark, colour = "‼", "33"
	case engine.Failed:
		mark, colour = "×", "31"
	}
	if !w.Colour {
		return mark
	}
	return "\x1b[" + colour + ";1m" + mark + "\x1b[0m"
}

// wait leaves a line that the next answer removes.
func (w *Writer) wait(r engine.Result) {
	if w.Progress == nil {
		return
	}
	first, _, _ := strings.Cut(Text(r.Err), "\n")
	fmt.Fprintf(w.Progress, "… %s: waiting: %s", plain.Text(r.Check.Name), short(first))
	w.waiting = true
}

func (w *Writer) clear() {
	if w.waiting {
		fmt.Fprint(w.Progress, "\r\x1b[K")
		w.waiting = false
	}
}

func (w *Writer) line(format string, args ...any) {
	if _, err := fmt.Fprintf(w.Out, format, args...); err != nil && w.failed == nil {
		w.failed = fmt.Errorf("writing the answers: %w", err)
	}
}

// progressWidth keeps the line of progress on one row of a terminal.
const progressWidth = 60

func short(text string) string {
	if runes := []rune(text); len(runes) > progressWidth {
		return string(runes[:progressWidth]) + "…"
	}
	return text
}
