package message

import (
	"bytes"
	"testing"
)

// TestValidValue: wherever a byte is, it is looked at.
func TestValidValue(t *testing.T) {
	for n := range 20 {
		for at := range n {
			for c := range 256 {
				b := bytes.Repeat([]byte{'a'}, n)
				b[at] = byte(c)
				for _, fill := range []byte{'a', ' ', '\t', 0x80, 0xff} {
					for i := range b {
						if i != at {
							b[i] = fill
						}
					}
					want := c >= ' ' && c != 0x7f || c == '\t'
					if got := ValidValue(string(b)); got != want {
						t.Fatalf("ValidValue(%q) = %v", b, got)
					}
				}
			}
		}
	}
}
