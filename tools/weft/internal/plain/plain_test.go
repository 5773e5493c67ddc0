package plain_test

import (
	"strings"
	"testing"

	"github.com/weftmesh/weft/tools/weft/internal/plain"
)

func TestNothingSteersTheTerminal(t *testing.T) {
	const in = "a\x1b[31mb\tc\nd\u202ee\u009b\xff"
	if got, want := plain.Line(in), "a?[31mb c d?e??"; got != want {
		t.Errorf("a line is %q, want %q", got, want)
	}
	if got, want := plain.Text(in), "a?[31mb c\nd?e??"; got != want {
		t.Errorf("a text is %q, want %q", got, want)
	}
}

func TestTextIsBounded(t *testing.T) {
	long := strings.Repeat("ä", 5000)
	for what, got := range map[string][2]int{
		"a name": {len([]rune(plain.Name(long))), 301},
		"a line": {len([]rune(plain.Line(long))), 4001},
		"a text": {len([]rune(plain.Text(long))), 4001},
	} {
		if got[0] != got[1] {
			t.Errorf("of %s %d characters are shown, want %d", what, got[0], got[1])
		}
	}
}
