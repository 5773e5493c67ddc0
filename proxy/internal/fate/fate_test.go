package fate

import (
	"net/http"
	"testing"
)

func TestTake(t *testing.T) {
	for _, tt := range []struct {
		name   string
		values []string
		want   Fate
	}{
		{"unsent", []string{"unsent"}, Unsent},
		{"lost", []string{"lost"}, Lost},
		{"none", nil, ""},
		{"unknown", []string{"eaten"}, ""},
		{"twice", []string{"unsent", "unsent"}, ""},
	} {
		h := http.Header{"X": {"y"}}
		if tt.values != nil {
			h[Name] = tt.values
		}
		if got := Take(h); got != tt.want || len(h) != 1 {
			t.Errorf("%s: %q, left %v", tt.name, got, h)
		}
	}
}

func TestSet(t *testing.T) {
	h := http.Header{}
	for _, f := range []Fate{Unsent, Lost, ""} {
		Set(h, f)
		if got := Take(h.Clone()); got != f {
			t.Errorf("set %q, taken %q", f, got)
		}
	}
	if len(h) != 0 {
		t.Errorf("left %v", h)
	}
}
