package inbound

import (
	"errors"
	"io"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/weftmesh/weft/proxy/internal/header"
)

// peer2 is a mesh peer that speaks HTTP/2 frame by frame.
type peer2 struct {
	*http2.Framer
	t *testing.T
}

func (w *world) peer2(port uint16) *peer2 {
	w.t.Helper()
	c := w.direct(w.ca.Local(w.t, alice), header.Header{Port: port, Session: header.HTTP2})
	if _, err := io.WriteString(c, http2.ClientPreface); err != nil {
		w.t.Fatal(err)
	}
	p := &peer2{http2.NewFramer(c, c), w.t}
	p.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	if err := p.WriteSettings(); err != nil {
		w.t.Fatal(err)
	}
	return p
}

// ask sends a request without a body on a stream.
func (p *peer2) ask(stream uint32, path string) {
	p.t.Helper()
	var block []byte
	for _, f := range [][2]string{{":method", "GET"}, {":scheme", "http"}, {":authority", "web"}, {":path", path}} {
		block = append(append(append(block, 0, byte(len(f[0]))), f[0]...), byte(len(f[1])))
		block = append(block, f[1]...)
	}
	if err := p.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: block, EndHeaders: true, EndStream: true}); err != nil {
		p.t.Fatal(err)
	}
}

// next is the next frame that is about leaving or about a stream; nil is the end of
// the connection. PINGs are answered.
func (p *peer2) next() http2.Frame {
	p.t.Helper()
	for {
		f, err := p.ReadFrame()
		if err != nil {
			if bad, ok := errors.AsType[http2.ConnectionError](err); ok {
				p.t.Fatal(bad)
			}
			return nil
		}
		switch f := f.(type) {
		case *http2.PingFrame:
			if !f.IsAck() {
				_ = p.WritePing(true, f.Data)
			}
		case *http2.GoAwayFrame, *http2.MetaHeadersFrame, *http2.DataFrame, *http2.RSTStreamFrame:
			return f
		}
	}
}

// goneAway reads a GOAWAY, without an error, and returns its last stream.
func (p *peer2) goneAway() uint32 {
	p.t.Helper()
	f, ok := p.next().(*http2.GoAwayFrame)
	if !ok || f.ErrCode != http2.ErrCodeNo {
		p.t.Fatalf("got %v, want a GOAWAY without an error", f)
	}
	return f.LastStreamID
}

// TestDrainOfHTTP2: an idle peer is told to leave, and the connection closed; a busy
// one is told, too, may still begin what was on its way, and gets its answers whole
// before the end (98, 99).
func TestDrainOfHTTP2(t *testing.T) {
	web, inside, finish := slowApp(t)
	w := newWorld(t, open).run()
	idle, busy := w.peer2(web.Port()), w.peer2(web.Port())
	idle.ask(1, "/")
	for ended := false; !ended; {
		switch f := idle.next().(type) {
		case *http2.DataFrame:
			ended = f.StreamEnded()
		case nil:
			t.Fatal("the connection has ended with its first request")
		}
	}
	busy.ask(1, "/slow")
	<-inside
	w.drain.Begin()

	const all = 1<<31 - 1 // what is on its way is welcome
	if last := idle.goneAway(); last != all {
		t.Errorf("the idle one's first GOAWAY is for streams after %d", last)
	}
	if last := idle.goneAway(); last != 1 {
		t.Errorf("the idle one's second GOAWAY is for streams after %d", last)
	}
	if f := idle.next(); f != nil {
		t.Errorf("the idle one goes on with %v", f)
	}
	if last := busy.goneAway(); last != all {
		t.Errorf("the busy one's first GOAWAY is for streams after %d", last)
	}
	if last := busy.goneAway(); last != 1 {
		t.Errorf("the busy one's second GOAWAY is for streams after %d", last)
	}
	busy.ask(3, "/late")
	if f, ok := busy.next().(*http2.RSTStreamFrame); !ok || f.StreamID != 3 || f.ErrCode != http2.ErrCodeRefusedStream {
		t.Errorf("a request after that gets %v", f)
	}
	close(finish)
	got := ""
	for f := busy.next(); f != nil; f = busy.next() {
		if d, ok := f.(*http2.DataFrame); ok {
			got += string(d.Data())
		}
	}
	if got != "done" {
		t.Errorf("the request in flight got %q", got)
	}
	<-w.stopped
}
