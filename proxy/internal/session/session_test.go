package session

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"
)

func TestToken(t *testing.T) {
	began := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	want := Token{Endpoint: Key("s", netip.MustParseAddrPort("10.0.0.1:80")), Began: began, Used: began.Add(time.Minute)}
	got, ok := Parse(want.String())
	if !ok || got.Endpoint != want.Endpoint || !got.Began.Equal(want.Began) || !got.Used.Equal(want.Used) {
		t.Errorf("Parse(%q) = %+v, %v", want, got, ok)
	}
	if strings.Contains(want.String(), "10.0.0.1") {
		t.Errorf("%s shows an address", want)
	}
	for _, bad := range []string{"", "x", want.String() + "A", want.String()[1:], strings.Repeat("-", 23), "AA" + want.String()[2:]} {
		if _, ok := Parse(bad); ok {
			t.Errorf("Parse(%q) is a token", bad)
		}
	}
	if Key("s", netip.MustParseAddrPort("10.0.0.1:80")) == Key("s", netip.MustParseAddrPort("10.0.0.1:81")) {
		t.Error("ports are not told apart")
	}
}

func TestValid(t *testing.T) {
	now := time.Unix(1e9, 0)
	for _, tt := range []struct {
		began, used    time.Duration // ago
		absolute, idle time.Duration
		want           bool
	}{
		{time.Hour, time.Hour, 0, 0, true},
		{time.Hour, time.Minute, 2 * time.Hour, 2 * time.Minute, true},
		{time.Hour, time.Minute, time.Hour, 0, false},
		{time.Minute, time.Minute, 0, time.Minute, false},
	} {
		token := Token{Began: now.Add(-tt.began), Used: now.Add(-tt.used)}
		if got := token.Valid(now, tt.absolute, tt.idle); got != tt.want {
			t.Errorf("%+v: %v", tt, got)
		}
	}
}

func TestCookies(t *testing.T) {
	lines := []string{`a=1; s="v"; ss=2`, "t=3;u=4"}
	for name, want := range map[string]string{"a": "1", "s": "v", "ss": "2", "t": "3", "u": "4", "x": ""} {
		if got := FromCookies(lines, name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	if got := (Token{}).Cookie("s", 90*time.Second); !strings.HasPrefix(got, "s=") || !strings.HasSuffix(got, "; Path=/; HttpOnly; Max-Age=90") {
		t.Errorf("%q", got)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(Token{}.String())
	f.Fuzz(func(t *testing.T, s string) {
		if token, ok := Parse(s); ok {
			if again, ok := Parse(token.String()); !ok || again != token {
				t.Errorf("%q: %+v, then %+v", s, token, again)
			}
		}
	})
}

func Example() {
	home := netip.MustParseAddrPort("10.0.0.1:80")
	brought := Token{Endpoint: Key("sid", home), Began: time.Unix(1e9, 0), Used: time.Unix(1e9, 0)}.Cookie("sid", 0)
	text, _, _ := strings.Cut(brought, ";")
	token, ok := Parse(FromCookies([]string{text}, "sid"))
	fmt.Println(ok, token.Endpoint == Key("sid", home))
	// Output: true true
}
