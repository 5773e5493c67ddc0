package h1

import (
	"strings"
	"testing"

	"github.com/weftmesh/weft/proxy/internal/message"
)

// TestWritesNoBrokenLine: what was read from a head was looked at then; what somebody
// has made since, also in the place of that, is looked at when it is written.
func TestWritesNoBrokenLine(t *testing.T) {
	var r message.Request
	const head = "GET / HTTP/1.1\r\nHost: a\r\nX-Read: one\r\nX-Set: two\r\n\r\n"
	if _, err := parseRequest(&r, nil, head); err != nil {
		t.Fatal(err)
	}
	r.Fields.Set("x-set", "a\r\nX-Evil: 1")
	r.Fields.Add("x-added", "a\nX-Evil: 1")
	r.Fields.Add("x evil", "1")
	r.Fields.Add("", "X-Evil: 1")
	r.Fields.Add("x-good", "three")
	got := string(appendRequest(nil, &r))
	want := "GET / HTTP/1.1\r\nHost: a\r\nX-Read: one\r\nx-good: three\r\n\r\n"
	if got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if kept := r.Fields.Keep(); !strings.EqualFold(kept[1].Name, "x-read") || !kept[1].Sound || kept[2].Sound {
		t.Errorf("a copy is as sound as what it is of: %+v", kept)
	}
}
