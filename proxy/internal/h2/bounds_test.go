package h2

import (
	"errors"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weftmesh/weft/proxy/internal/frame"
	"github.com/weftmesh/weft/proxy/internal/message"
)

// TestBadAnswersCostNoWindow: answers longer than they say are broken off one by
// one, and do not use up the connection that other requests share.
func TestBadAnswersCostNoWindow(t *testing.T) {
	near, far := pair(t)
	c := Client(near, Config{ConnWindow: frame.FirstWindow})
	go func() { _ = c.Run() }()
	t.Cleanup(c.Close)
	r := newRaw(t, far)
	preface := make([]byte, len(frame.Preface))
	if _, err := io.ReadFull(far, preface); err != nil {
		t.Fatal(err)
	}
	r.must(r.WriteSettings())
	go func() { _, _ = io.Copy(io.Discard, far) }()
	for i := range 20 {
		s, err := c.Open(t.Context(), &message.Request{Method: "GET", Authority: "a", Target: "/"}, true)
		if err != nil {
			t.Fatal(err)
		}
		r.headers(s.id, false, ":status: 200", "content-length: 1")
		r.must(r.WriteData(s.id, false, make([]byte, 16<<10)))
		for err == nil {
			if _, err = s.Response(); err == nil {
				_, err = s.Next()
			}
		}
		s.Close()
		if c.Err() != nil {
			t.Fatalf("after %d: %v", i, c.Err())
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.recvWindow+c.owed != frame.FirstWindow {
		t.Errorf("%d bytes of the window are lost", frame.FirstWindow-c.recvWindow-c.owed)
	}
}

// TestHeadsWaitForTheReader: no window bounds the heads of answers, so a client
// that asks and never reads must make them wait.
func TestHeadsWaitForTheReader(t *testing.T) {
	near, far := net.Pipe() // which holds nothing
	t.Cleanup(func() { _ = near.Close() })
	answered := make(chan struct{}, 100)
	c := Server(far, Config{Handle: func(s *Stream) {
		go func() {
			defer s.Done()
			answered <- struct{}{}
			res := &message.Response{Status: 200}
			res.Fields.Add("x-large", strings.Repeat("x", 8<<10))
			_ = s.Respond(res)
			_ = s.Finish(nil)
		}()
	}})
	done := make(chan struct{})
	go func() { defer close(done); _ = c.Run() }()
	t.Cleanup(func() { c.Close(); <-done })
	r := newRaw(t, near)
	r.send([]byte(frame.Preface))
	r.must(r.WriteSettings())
	for i := range uint32(100) {
		r.headers(2*i+1, true, get...)
		<-answered
	}
	waits := func() int {
		c.mu.Lock()
		defer c.mu.Unlock()
		if most := highWater + 16<<10; len(c.out) > most {
			t.Fatalf("%d bytes wait to be written, more than %d", len(c.out), most)
		}
		return len(c.blocked)
	}
	for waits() == 0 {
		<-time.After(time.Millisecond)
	}
	// Who reads at last gets every answer.
	for i, left := 0, 100; left > 0; i++ {
		if f := r.read(); f.Header().Type == 1 {
			left--
		}
	}
}

// deaf takes some bytes of what is written and then fails.
type deaf struct {
	net.Conn
	takes int
}

func (d *deaf) Write(b []byte) (int, error) {
	n := min(d.takes, len(b))
	if d.takes -= n; n < len(b) {
		return n, syscall.EPIPE
	}
	return n, nil
}

// TestAWriteThatFailsWhole: a request of which no byte went out may be sent
// elsewhere, whatever it asks for.
func TestAWriteThatFailsWhole(t *testing.T) {
	near, far := net.Pipe()
	defer func() { _ = far.Close() }()
	c := Client(&deaf{Conn: near}, Config{})
	go func() { _ = c.Run() }()
	t.Cleanup(c.Close)
	s, err := c.Open(t.Context(), &message.Request{Method: "POST", Authority: "web", Target: "/"}, false)
	if err == nil {
		_, err = s.Response()
	}
	if _, unsent := errors.AsType[*UnsentError](err); !unsent {
		t.Errorf("%v, want an UnsentError", err)
	}
}
