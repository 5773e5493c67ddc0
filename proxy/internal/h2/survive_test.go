package h2

import (
	"bytes"
	"context"
	"net"
	"testing"

	"golang.org/x/net/http2"

	"github.com/weftmesh/weft/proxy/internal/frame"
)

// buggy is a connection that panics when it is read from, or written to.
type buggy struct {
	net.Conn
	reads, writes bool
}

func (b *buggy) Read(p []byte) (int, error) {
	if b.reads {
		panic("a bug of reading")
	}
	return b.Conn.Read(p)
}

func (b *buggy) Write(p []byte) (int, error) {
	if b.writes {
		panic("a bug of writing")
	}
	return b.Conn.Write(p)
}

func TestABugEndsOneConnectionOnly(t *testing.T) {
	for _, how := range []buggy{{reads: true}, {writes: true}} {
		near, far := net.Pipe()
		t.Cleanup(func() { _ = far.Close() })
		line := &Line{Open: func(context.Context) (*Conn, error) {
			return Client(&buggy{Conn: near, reads: how.reads, writes: how.writes}, Config{}), nil
		}}
		t.Cleanup(line.Close)
		c, err := line.Get(t.Context())
		if err == nil {
			_, _, _, err = ask(t, c, post("/"), []byte("x"), nil)
		}
		if err == nil {
			t.Errorf("reads %v: no error", how.reads)
		}
	}
}

// TestNothingIsServedAfterTheEnd: a request that was read together with one in whose
// handler the connection is closed is not passed on. Its body would never end.
func TestNothingIsServedAfterTheEnd(t *testing.T) {
	near, far := pair(t)
	handled := 0
	var c *Conn
	c = Server(far, Config{Handle: func(s *Stream) { // on Run's goroutine
		defer s.Done()
		handled++
		c.Close()
	}})
	over := make(chan struct{})
	go func() { defer close(over); _ = c.Run() }()
	r := newRaw(t, near)
	var both bytes.Buffer
	both.WriteString(frame.Preface)
	w := http2.NewFramer(&both, nil)
	r.must(w.WriteSettings())
	for _, id := range []uint32{1, 3} { // the second has a body to come
		r.must(w.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: r.block(get...), EndHeaders: true, EndStream: id == 1}))
	}
	r.send(both.Bytes())
	<-over
	if handled != 1 {
		t.Errorf("%d requests were handled, want the one before the end", handled)
	}
}
