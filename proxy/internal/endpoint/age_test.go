package endpoint

import (
	"context"
	"io"
	"net"
	"net/netip"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weftmesh/weft/proxy/internal/h2"
	"github.com/weftmesh/weft/proxy/internal/message"
	"github.com/weftmesh/weft/proxy/internal/resolve"
)

// peers are servers of HTTP/2 behind pipes, in virtual time.
type peers struct {
	made, gone atomic.Int64
	hold       chan struct{} // who asks for /hold is answered when it is closed
}

func (p *peers) dial(context.Context, string) (net.Conn, error) {
	near, far := net.Pipe()
	p.made.Add(1)
	c := h2.Server(far, h2.Config{Handle: func(s *h2.Stream) {
		go func() {
			defer s.Done()
			if s.Request().Target == "/hold" {
				<-p.hold
			}
			if s.Respond(&message.Response{Status: 200, Length: message.Unknown}) == nil && s.Write([]byte("whole")) == nil {
				_ = s.Finish(nil)
			}
		}()
	}})
	go func() {
		_ = c.Run()
		p.gone.Add(1)
	}()
	return near, nil
}

// get asks the endpoint for a target; the answer is whole.
func (p *peers) get(t *testing.T, e *Endpoint, target string) error {
	t.Helper()
	c := call2("")
	c.Body, c.Request.Target, c.Request.Method = nil, target, "GET"
	a, err := e.RoundTrip(t.Context(), c)
	if err != nil {
		return err
	}
	got, err := text(a)
	if err == nil && got != "whole" {
		err = io.ErrUnexpectedEOF
	}
	return err
}

// TestConnectionsToPeersEnd: one that has been idle for five minutes ends, and one
// that is an hour old ends too, when what is under way on it has. No request is lost
// to that.
func TestConnectionsToPeersEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &peers{hold: make(chan struct{})}
		d := deps(t, nil)
		d.Dial = p.dial
		e := New(resolve.Endpoint{Addr: netip.MustParseAddrPort("10.0.0.1:80"), Hint: resolve.HintH2}, d, new(reach))
		defer func() { e.Close(); synctest.Wait() }()
		ask := func() {
			t.Helper()
			if err := p.get(t, e, "/"); err != nil {
				t.Fatal(err)
			}
		}
		pass := func(d time.Duration) {
			time.Sleep(d) //nolint:forbidigo // virtual time
			synctest.Wait()
		}
		ask()
		pass(idleHTTP2 - time.Second)
		ask() // counts anew
		pass(idleHTTP2 - time.Second)
		if p.made.Load() != 1 || p.gone.Load() != 0 {
			t.Errorf("%d connections, %d of them gone, before one was idle for long", p.made.Load(), p.gone.Load())
		}
		pass(2 * time.Second)
		if p.gone.Load() != 1 {
			t.Errorf("%d connections have ended after %v of idleness", p.gone.Load(), idleHTTP2)
		}

		held := make(chan error, 1)
		go func() { held <- p.get(t, e, "/hold") }()
		for began := time.Now(); time.Since(began) < maxAge-maxAge/10; pass(time.Minute) {
			ask()
		}
		if p.made.Load() != 2 {
			t.Errorf("%d connections before one was old", p.made.Load())
		}
		for began := time.Now(); time.Since(began) < maxAge/5+2*time.Minute; pass(time.Minute) { // a tenth more than its age, and a request after that
			ask()
		}
		if p.made.Load() != 3 || p.gone.Load() != 1 {
			t.Errorf("%d connections, %d of them gone: want a third, and the second kept by who is under way", p.made.Load(), p.gone.Load())
		}
		close(p.hold)
		if err := <-held; err != nil {
			t.Errorf("the request that was under way: %v", err)
		}
		pass(time.Second)
		if p.gone.Load() != 2 {
			t.Error("the old connection does not end when it has nothing to do")
		}
	})
}
