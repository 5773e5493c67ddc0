package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

var errBad = errors.New("bad")

// answers is a check that gives these answers, the last one for ever.
func answers(all ...error) func(context.Context) error {
	return func(context.Context) error {
		err := all[0]
		if len(all) > 1 {
			all = all[1:]
		}
		return err
	}
}

// transcript runs checks and writes down each result with the time it came.
func transcript(t *testing.T, r Runner, checks ...Check) ([]string, Outcome) {
	t.Helper()
	var lines []string
	begin := time.Now()
	r.Tell = func(res Result) {
		line := fmt.Sprintf("%s %s/%s %s", time.Since(begin), res.Category, res.Check.Name, res.Verdict())
		if res.Retrying {
			line += " (retrying)"
		}
		if res.Err != nil {
			line += ": " + res.Err.Error()
		}
		lines = append(lines, line)
	}
	outcome, err := r.Run(t.Context(), []Category{{Name: "one", Checks: checks}, {Name: "two", Checks: []Check{{Name: "end", Run: answers(nil)}}}})
	if err != nil {
		t.Errorf("Run() = %v", err)
	}
	return lines, outcome
}

func TestRun(t *testing.T) {
	hang := func(ctx context.Context) error { <-ctx.Done(); return fmt.Errorf("asking: %w", ctx.Err()) }
	lie := func(ctx context.Context) error { <-ctx.Done(); return nil }
	tests := []struct {
		name   string
		runner Runner
		checks []Check
		want   []string
		all    Outcome
	}{
		{
			name:   "all is well",
			checks: []Check{{Name: "a", Run: answers(nil)}},
			want:   []string{"0s one/a success", "0s two/end success"},
			all:    Outcome{Passed: 2},
		},
		{
			name:   "an error and a warning do not stop it",
			checks: []Check{{Name: "a", Run: answers(errBad)}, {Name: "b", Warning: true, Run: answers(errBad)}},
			want:   []string{"0s one/a error: bad", "0s one/b warning: bad", "0s two/end success"},
			all:    Outcome{Passed: 1, Warned: 1, Failed: 1},
		},
		{
			name:   "a fatal one does",
			checks: []Check{{Name: "a", Fatal: true, Run: answers(errBad)}, {Name: "b", Run: answers(nil)}},
			want:   []string{"0s one/a error: bad"},
			all:    Outcome{Failed: 1},
		},
		{
			name:   "a good fatal one does not",
			checks: []Check{{Name: "a", Fatal: true, Run: answers(nil)}},
			want:   []string{"0s one/a success", "0s two/end success"},
			all:    Outcome{Passed: 2},
		},
		{
			name:   "retried until it is good",
			runner: Runner{Wait: time.Minute},
			checks: []Check{{Name: "a", Retry: true, Run: answers(errBad, errBad, nil)}},
			want: []string{
				"0s one/a error (retrying): bad", "5s one/a error (retrying): bad", "10s one/a success", "10s two/end success",
			},
			all: Outcome{Passed: 2},
		},
		{
			name:   "retried until the deadline of the run, which all checks share",
			runner: Runner{Wait: 7 * time.Second},
			checks: []Check{{Name: "a", Retry: true, Run: answers(errBad)}, {Name: "b", Retry: true, Warning: true, Run: answers(errBad)}},
			want: []string{
				"0s one/a error (retrying): bad", "5s one/a error (retrying): bad", "7s one/a error: bad",
				"7s one/b warning: bad", "7s two/end success",
			},
			all: Outcome{Passed: 1, Warned: 1, Failed: 1},
		},
		{
			name:   "no wait, no retry",
			checks: []Check{{Name: "a", Retry: true, Run: answers(errBad, nil)}},
			want:   []string{"0s one/a error: bad", "0s two/end success"},
			all:    Outcome{Passed: 1, Failed: 1},
		},
		{
			name:   "only those that say so are retried",
			runner: Runner{Wait: time.Minute},
			checks: []Check{{Name: "a", Run: answers(errBad, nil)}},
			want:   []string{"0s one/a error: bad", "0s two/end success"},
			all:    Outcome{Passed: 1, Failed: 1},
		},
		{
			name:   "skipped: nothing is told",
			runner: Runner{Wait: time.Minute},
			checks: []Check{{Name: "a", Fatal: true, Retry: true, Run: answers(Skip("no CNI"))}},
			want:   []string{"0s two/end success"},
			all:    Outcome{Passed: 1},
		},
		{
			name:   "a check that hangs fails in its time",
			runner: Runner{Request: 3 * time.Second},
			checks: []Check{{Name: "a", Run: hang}},
			want:   []string{"3s one/a error: no answer within 3s", "3s two/end success"},
			all:    Outcome{Passed: 1, Failed: 1},
		},
		{
			name:   "a check that gives up and calls it good fails too",
			checks: []Check{{Name: "a", Run: lie}},
			want:   []string{"30s one/a error: no answer within 30s", "30s two/end success"},
			all:    Outcome{Passed: 1, Failed: 1},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				got, all := transcript(t, tt.runner, tt.checks...)
				if diff := cmp.Diff(tt.want, got); diff != "" {
					t.Errorf("results (-want +got):\n%s", diff)
				}
				if all != tt.all {
					t.Errorf("outcome = %+v, want %+v", all, tt.all)
				}
			})
		})
	}
}

func TestRunEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 12*time.Second)
		defer cancel()
		var told []bool
		r := Runner{Wait: time.Hour, Tell: func(res Result) { told = append(told, res.Retrying) }}
		begin := time.Now()
		_, err := r.Run(ctx, []Category{{Name: "one", Checks: []Check{{Name: "a", Retry: true, Run: answers(errBad)}}}})
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(begin) != 12*time.Second {
			t.Errorf("Run() = %v after %s, want the end of the context after 12s", err, time.Since(begin))
		}
		// No last word: nobody knows what it would have been.
		if slices.Contains(told, false) {
			t.Error("a check that was interrupted had a last word")
		}
	})
}

func TestOutcomeVerdict(t *testing.T) {
	for want, o := range map[Verdict]Outcome{
		Passed: {Passed: 3}, Warned: {Passed: 3, Warned: 1}, Failed: {Warned: 1, Failed: 1},
	} {
		if got := o.Verdict(); got != want {
			t.Errorf("%+v.Verdict() = %s, want %s", o, got, want)
		}
	}
}
