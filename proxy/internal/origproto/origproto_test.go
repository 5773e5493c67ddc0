package origproto

import (
	"fmt"
	"net/http"
	"testing"
)

func TestRoundTrip(t *testing.T) {
	for _, tt := range []struct {
		proto Proto
		want  string
	}{
		{Proto{Minor: 1}, "HTTP/1.1"},
		{Proto{Minor: 0}, "HTTP/1.0"},
		{Proto{Minor: 1, Absolute: true}, "HTTP/1.1; absolute-form"},
		{Proto{Minor: 0, Absolute: true}, "HTTP/1.0; absolute-form"},
	} {
		if got := tt.proto.String(); got != tt.want {
			t.Errorf("String() = %q, want %q", got, tt.want)
		}
		if got, ok := Parse(tt.want); !ok || got != tt.proto {
			t.Errorf("Parse(%q) = %v, %v", tt.want, got, ok)
		}
	}
}

func TestTake(t *testing.T) {
	for _, tt := range []struct {
		name   string
		values []string
		want   Proto
		ok     bool
	}{
		{"absent", nil, Proto{}, false},
		{"empty", []string{}, Proto{}, false},
		{"known", []string{"HTTP/1.0"}, Proto{}, true},
		{"more is known by its prefix", []string{"HTTP/1.1; something-new"}, Proto{Minor: 1}, true},
		{"unknown", []string{"HTTP/2.0"}, Proto{}, false},
		{"the first counts", []string{"HTTP/1.1", "HTTP/1.0"}, Proto{Minor: 1}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := http.Header{"Other": {"1"}}
			if tt.values != nil {
				h[Name] = tt.values
			}
			got, ok := Take(h)
			if got != tt.want || ok != tt.ok {
				t.Errorf("Take() = %v, %v, want %v, %v", got, ok, tt.want, tt.ok)
			}
			if _, left := h[Name]; left || len(h) != 1 {
				t.Errorf("headers left: %v", h)
			}
		})
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"", "HTTP/1.1", "HTTP/1.0; absolute-form", "HTTP/1.1;absolute-form", "HTTP/2.0"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		p, ok := Parse(s)
		if !ok {
			return
		}
		if again, ok := Parse(p.String()); !ok || again != p {
			t.Errorf("Parse(%q) = %v, which does not survive writing: %v", s, p, again)
		}
	})
}

func ExampleProto_String() {
	fmt.Println(Proto{Minor: 1, Absolute: true})
	// Output: HTTP/1.1; absolute-form
}
