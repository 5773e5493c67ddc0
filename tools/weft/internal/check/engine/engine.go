// Package engine runs checks in order: it gives each its time, tries again the
// ones that may come right by waiting, and stops at the first that makes the
// rest meaningless. It knows nothing of what is checked, and time is the only
// part of the world that it touches.
package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weftmesh/weft/services/kit/pause"
)

const (
	defaultEvery   = 5 * time.Second
	defaultRequest = 30 * time.Second
)

// Check is one question whose good answer is nil.
type Check struct {
	Name   string // as a person and a script read it
	Anchor string // of the hint that explains a bad answer
	// Fatal ends the run when the check fails: what follows relies on it.
	Fatal bool
	// Warning makes a bad answer one that does not fail the run.
	Warning bool
	// Retry asks again, until the run's deadline, as long as the answer is bad.
	Retry bool
	// Run asks. It must return soon after ctx is done.
	Run func(ctx context.Context) error
}

// Category is checks that belong together.
type Category struct {
	Name   string
	Checks []Check
}

// Result is one answer, or one of the answers that will be asked for again.
type Result struct {
	Category string
	Check    Check
	Retrying bool  // it is not the last word
	Err      error // nil is a good answer
}

// Verdict is a result in one word.
type Verdict string

// The verdicts; they are also the words in JSON.
const (
	Passed Verdict = "success"
	Warned Verdict = "warning"
	Failed Verdict = "error"
)

// Verdict judges r.
func (r Result) Verdict() Verdict {
	switch {
	case r.Err == nil:
		return Passed
	case r.Check.Warning:
		return Warned
	default:
		return Failed
	}
}

// Outcome counts the last words of a run.
type Outcome struct{ Passed, Warned, Failed int }

// Add counts one more verdict.
func (o *Outcome) Add(v Verdict) {
	switch v {
	case Passed:
		o.Passed++
	case Warned:
		o.Warned++
	default:
		o.Failed++
	}
}

// Verdict is the worst of the run.
func (o Outcome) Verdict() Verdict {
	switch {
	case o.Failed > 0:
		return Failed
	case o.Warned > 0:
		return Warned
	default:
		return Passed
	}
}

// skip is the error of a check that has nothing to look at.
type skip string

func (s skip) Error() string { return "skipped: " + string(s) }

// Skip is what a check returns that does not apply; the run goes on and no
// result is told.
func Skip(why string) error { return skip(why) }

// Runner runs checks. The zero value asks each check once.
type Runner struct {
	Wait    time.Duration // from the start of the run, for checks with Retry
	Every   time.Duration // between two tries; 0 means 5 s
	Request time.Duration // for one try; 0 means 30 s
	// Tell hears each result, in order, on the goroutine of Run.
	Tell func(Result)
}

// Run asks the checks in their order. It returns early after a fatal check
// failed, and with ctx's cause when ctx ends; what was told until then stands.
func (r Runner) Run(ctx context.Context, categories []Category) (Outcome, error) {
	var outcome Outcome
	deadline := time.Now().Add(r.Wait)
	for _, category := range categories {
		for _, check := range category.Checks {
			err := r.last(ctx, category.Name, check, deadline)
			if ctx.Err() != nil {
				return outcome, fmt.Errorf("checking %q: %w", check.Name, context.Cause(ctx))
			}
			if _, skipped := errors.AsType[skip](err); skipped {
				continue
			}
			result := Result{Category: category.Name, Check: check, Err: err}
			r.tell(result)
			outcome.Add(result.Verdict())
			if err != nil && check.Fatal {
				return outcome, nil
			}
		}
	}
	return outcome, nil
}

// last asks a check until its answer is good, or is the last word.
func (r Runner) last(ctx context.Context, category string, check Check, deadline time.Time) error {
	every := r.Every
	if every <= 0 {
		every = defaultEvery
	}
	for {
		err := r.try(ctx, check)
		_, skipped := errors.AsType[skip](err)
		if err == nil || skipped || !check.Retry || !time.Now().Before(deadline) || ctx.Err() != nil {
			return err
		}
		r.tell(Result{Category: category, Check: check, Err: err, Retrying: true})
		if !pause.For(ctx, min(every, time.Until(deadline))) {
			return err
		}
	}
}

// try asks once. An answer that comes after its time is a bad one, whatever it
// says: a check that gave up must never pass.
func (r Runner) try(ctx context.Context, check Check) error {
	limit := r.Request
	if limit <= 0 {
		limit = defaultRequest
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err := check.Run(ctx)
	if ctx.Err() == nil {
		return err
	}
	if _, skipped := errors.AsType[skip](err); err == nil || skipped || errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("no answer within %s", limit)
	}
	return err
}

func (r Runner) tell(result Result) {
	if r.Tell != nil {
		r.Tell(result)
	}
}
