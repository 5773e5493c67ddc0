package h2

import (
	"context"
	"net"
	"testing"
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
