package h2

import (
	"strings"
	"testing"

	"github.com/weftmesh/weft/proxy/internal/message"
)

// TestBytesOfFields: each byte at each place of a value and of a name is judged as
// RFC 9113 §8.2.1 says, however long the string is.
func TestBytesOfFields(t *testing.T) {
	const around = "abcdefghijklmnopq"
	for c := range 256 {
		for at := range len(around) {
			s := around[:at] + string([]byte{byte(c)}) + around[at+1:]
			edge := at == 0 || at == len(around)-1
			want := c >= ' ' && c != 0x7f || c == '\t'
			if edge && (c == ' ' || c == '\t') {
				want = false
			}
			if got := ValidValue(s); got != want {
				t.Fatalf("byte %#x at %d of a value: %v", c, at, got)
			}
			want = 'a' <= c && c <= 'z' || '0' <= c && c <= '9' || c < 0x80 && strings.IndexByte("!#$%&'*+-.^_`|~", byte(c)) >= 0
			if got := check(&message.Field{Name: s}) == nil; got != want {
				t.Fatalf("byte %#x at %d of a name: %v", c, at, got)
			}
			if got, want := visible(s), c > ' ' && c != 0x7f && c != '#'; got != want {
				t.Fatalf("byte %#x at %d of a target: %v", c, at, got)
			}
		}
	}
	if !ValidValue("") || check(&message.Field{}) == nil {
		t.Error("what is empty")
	}
}
