package pattern_test

import (
	"strings"
	"testing"

	"github.com/weftmesh/weft/services/kit/pattern"
)

func TestWhole(t *testing.T) {
	for _, tt := range []struct {
		expr, takes, not string
		wrong            string // part of the error
	}{
		{expr: `/a/[0-9]+`, takes: "/a/17", not: "/a/17/b"},
		{expr: `a|b`, takes: "b", not: "ab"}, // the alternative spans too
		{expr: ``, takes: "", not: "a"},
		{expr: `(ab){1000}`, takes: strings.Repeat("ab", 1000), not: "ab"},
		{expr: `\p{L}+`, takes: "ä", not: "1"}, // a class is one step
		{expr: `(`, wrong: "missing closing"},
		{expr: `a)(b`, wrong: "unexpected )"}, // not a way out of the group
		{expr: `(a{1000}){1000}`, wrong: "repeat"},
		{expr: "(?:" + strings.Repeat("a?", 100) + "){1000}", wrong: "too large"},
		{expr: strings.Repeat("a", 4097), wrong: "too large"},
	} {
		re, err := pattern.Whole(tt.expr)
		switch {
		case tt.wrong != "":
			if err == nil || !strings.Contains(err.Error(), tt.wrong) {
				t.Errorf("%.40q: %v, want an error with %q", tt.expr, err, tt.wrong)
			}
		case err != nil:
			t.Errorf("%.40q: %v", tt.expr, err)
		case !re.MatchString(tt.takes) || re.MatchString(tt.not):
			t.Errorf("%.40q takes %q: %v, %q: %v", tt.expr, tt.takes, re.MatchString(tt.takes), tt.not, re.MatchString(tt.not))
		}
	}
}

func FuzzWhole(f *testing.F) {
	for _, expr := range []string{`/a/[0-9]+`, `(a?b?){1000}`, `a)(b`, `[[:alpha:]]*`, `(?i)x{2,}`} {
		f.Add(expr, "/a/1")
	}
	f.Fuzz(func(t *testing.T, expr, value string) {
		re, err := pattern.Whole(expr)
		if err != nil {
			return
		}
		if at := re.FindStringIndex(value); at != nil && (at[0] != 0 || at[1] != len(value)) && !strings.Contains(expr, "(?") {
			t.Errorf("%q takes only %v of %q", expr, at, value)
		}
	})
}
