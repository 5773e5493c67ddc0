package h2

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weftmesh/weft/proxy/internal/message"
)

// TestShutdownLetsStreamsEnd: the peer is told, what is open is served, and then
// the connection is closed; what comes too late may go elsewhere.
func TestShutdownLetsStreamsEnd(t *testing.T) {
	hold := make(chan struct{})
	started := make(chan struct{})
	var server *Conn
	ready := make(chan struct{})
	c := dial(t, Config{}, func(nc net.Conn) {
		server = Server(nc, Config{Handle: func(s *Stream) {
			go func() { close(started); <-hold; echo(s) }()
		}})
		close(ready)
		_ = server.Run()
	})
	<-ready
	s, err := c.Open(t.Context(), &message.Request{Method: "GET", Authority: "a", Target: "/"}, true)
	if err != nil {
		t.Fatal(err)
	}
	<-started
	server.Shutdown()
	for c.Usable() {
		<-time.After(time.Millisecond)
	}
	if _, err := c.Open(t.Context(), &message.Request{Method: "GET", Authority: "a", Target: "/"}, true); !isUnsent(err) {
		t.Errorf("opening after GOAWAY: %v, want it unsent", err)
	}
	close(hold)
	if res, err := s.Response(); err != nil || res.Status != 200 {
		t.Errorf("the open stream: %v, %v", res, err)
	}
	<-c.Ended()
	<-server.Ended()
}

func TestClientShutdown(t *testing.T) {
	c := dial(t, Config{}, func(nc net.Conn) { _ = Server(nc, Config{Handle: func(s *Stream) { go echo(s) }}).Run() })
	s, err := c.Open(t.Context(), post("/"), false)
	if err != nil {
		t.Fatal(err)
	}
	c.Shutdown()
	if err := s.Write([]byte("hello")); err != nil {
		t.Fatal(err)
	}
	_ = s.Finish(nil)
	if p, err := s.Next(); string(p) != "hello" {
		t.Errorf("Next = %q, %v", p, err)
	}
	if _, err := s.Next(); !errors.Is(err, io.EOF) {
		t.Error(err)
	}
	<-c.Ended()
}

// TestWaitForAStream: the peer's limit makes requests wait, until they give up.
func TestWaitForAStream(t *testing.T) {
	c := dial(t, Config{}, func(nc net.Conn) {
		_ = Server(nc, Config{MaxStreams: 1, Handle: func(s *Stream) { go echo(s) }}).Run()
	})
	if _, _, _, err := ask(t, c, post("/"), []byte("x"), nil); err != nil { // the limit is known now
		t.Fatal(err)
	}
	s, err := c.Open(t.Context(), post("/"), false)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	failed := make(chan error)
	go func() { _, err := c.Open(ctx, post("/"), true); failed <- err }()
	other := make(chan error)
	go func() {
		_, _, _, err := ask(t, c, post("/"), []byte("y"), nil)
		other <- err
	}()
	cancel()
	if err := <-failed; !errors.Is(err, context.Canceled) {
		t.Errorf("Open = %v", err)
	}
	s.Close()
	if err := <-other; err != nil {
		t.Errorf("the one that waited: %v", err)
	}
}

// TestClientGoes: the handler learns of it, whatever it is doing.
func TestClientGoes(t *testing.T) {
	streams := make(chan *Stream, 1)
	near, _ := serve(t, Config{}, func(s *Stream) { streams <- s })
	c := Client(near, Config{})
	go func() { _ = c.Run() }()
	up, err := c.Open(t.Context(), post("/"), false)
	if err != nil {
		t.Fatal(err)
	}
	s := <-streams
	told := make(aborter, 2)
	s.Guard(told)
	up.Abort(errors.New("changed my mind"))
	if err := <-told; !errors.Is(err, message.ErrGone) {
		t.Errorf("the guard was told %v", err)
	}
	<-s.Context().Done()
	if s.Context().Err() == nil {
		t.Error("the context has ended without an error")
	}
	if _, err := s.Next(); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("the body ends with %v", err)
	}
	if s.Write([]byte("x")) == nil {
		t.Error("writing to nobody succeeds")
	}
	s.Guard(told)
	if err := <-told; !errors.Is(err, message.ErrGone) {
		t.Errorf("a late guard was told %v", err)
	}
	s.Done()
}

type aborter chan error

func (a aborter) Abort(err error) { a <- err }

// TestHandlerLeaves: a stream that nobody finished is reset.
func TestHandlerLeaves(t *testing.T) {
	c := dial(t, Config{}, func(nc net.Conn) {
		_ = Server(nc, Config{Handle: func(s *Stream) {
			_ = s.Respond(&message.Response{Status: 200, Length: message.Unknown})
			_ = s.Write([]byte("half"))
			s.Done()
		}}).Run()
	})
	_, body, _, err := ask(t, c, post("/"), nil, nil)
	if string(body) != "half" || err == nil {
		t.Errorf("%q, %v; want half an answer and an error", body, err)
	}
}

// TestEarlyAnswer: an answer before the whole question; the rest is not wanted.
func TestEarlyAnswer(t *testing.T) {
	c := dial(t, Config{}, func(nc net.Conn) {
		_ = Server(nc, Config{Handle: func(s *Stream) {
			_ = s.Respond(&message.Response{Status: 413, Length: 0})
			_ = s.Finish(nil)
			s.Done()
		}}).Run()
	})
	s, err := c.Open(t.Context(), post("/"), false)
	if err != nil {
		t.Fatal(err)
	}
	for err == nil { // more than any window
		err = s.Write(make([]byte, 10000))
	}
	if res, err := s.Response(); err != nil || res.Status != 413 {
		t.Errorf("Response = %v, %v", res, err)
	}
	if _, err := s.Next(); !errors.Is(err, io.EOF) {
		t.Errorf("the body ends with %v", err)
	}
	if n := c.InFlight(); n != 0 {
		t.Errorf("%d streams are left", n)
	}
}

// TestTime is what ends connections by themselves, in virtual time.
func TestTime(t *testing.T) {
	for _, tt := range []struct {
		name string
		cfg  Config
		dead bool // the peer says nothing
		want time.Duration
		give time.Duration // or take
	}{
		{"idle", Config{Idle: time.Minute}, false, time.Minute, 0},
		{"old", Config{MaxAge: time.Hour}, false, time.Hour, 6 * time.Minute},
		{"silent", Config{KeepaliveInterval: 10 * time.Second, KeepaliveTimeout: 3 * time.Second}, true, 13 * time.Second, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				near, far := net.Pipe()
				tt.cfg.Handle = func(s *Stream) { go echo(s) }
				server := Server(far, tt.cfg)
				began := time.Now()
				go func() { _ = server.Run() }()
				c := Client(near, Config{KeepaliveInterval: time.Second, KeepaliveTimeout: time.Second})
				if tt.dead {
					go func() { _, _ = io.Copy(io.Discard, near) }()
				} else {
					go func() { _ = c.Run() }()
				}
				<-server.Ended()
				if took := time.Since(began); took < tt.want-tt.give || took > tt.want+tt.give+2*time.Second {
					t.Errorf("it ended after %v, want %v", took, tt.want)
				}
				c.Close()
				_ = near.Close()
				synctest.Wait()
			})
		})
	}
}

// TestCreditIsHonest: what nobody reads is not paid for (complaint E12 is that
// what has been read must be).
func TestCreditIsHonest(t *testing.T) {
	streams := make(chan *Stream, 1)
	near, _ := serve(t, Config{}, func(s *Stream) { streams <- s })
	c := Client(near, Config{})
	go func() { _ = c.Run() }()
	up, err := c.Open(t.Context(), post("/"), false)
	if err != nil {
		t.Fatal(err)
	}
	sent := make(chan error, 1)
	go func() {
		err := up.Write(make([]byte, 70000))
		if err == nil {
			err = up.Finish(nil)
		}
		sent <- err
	}()
	s := <-streams
	got := 0
	for {
		s.c.mu.Lock()
		n := len(s.in)
		s.c.mu.Unlock()
		if n == 65535 {
			break
		}
		<-time.After(time.Millisecond)
	}
	for {
		p, err := s.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		got += len(p)
	}
	if err := <-sent; err != nil || got != 70000 {
		t.Errorf("%d bytes, %v", got, err)
	}
	_ = s.Respond(&message.Response{Status: 204})
	_ = s.Finish(nil)
	s.Done()
}
