package message

import (
	"strings"
	"testing"
)

func TestToken(t *testing.T) {
	for c := range 256 {
		for at := range 3 {
			s := "abc"[:at] + string([]byte{byte(c)}) + "abc"[at+1:]
			letter := 'a' <= c|0x20 && c|0x20 <= 'z' && c < 0x80
			digit := '0' <= c && c <= '9'
			want := letter || digit || c < 0x80 && strings.IndexByte("!#$%&'*+-.^_`|~", byte(c)) >= 0
			if got := Token(s); got != want {
				t.Fatalf("byte %#x at %d of a token: %v", c, at, got)
			}
			want = letter || at > 0 && (digit || c == '+' || c == '-' || c == '.')
			if got := SchemeName(s); got != want {
				t.Fatalf("byte %#x at %d of a scheme: %v", c, at, got)
			}
		}
	}
	if Token("") || SchemeName("") {
		t.Error("what is empty is neither")
	}
}
