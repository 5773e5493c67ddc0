package h2

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestLineIsOneConnectionUntilItIsFull: requests share a connection as long as the
// peer takes them on it; then there are more, but not without bounds.
func TestLineIsOneConnectionUntilItIsFull(t *testing.T) {
	var made atomic.Int64
	hold := make(chan struct{})
	line := &Line{Open: func(context.Context) (*Conn, error) {
		made.Add(1)
		near, far := pair(t)
		go func() {
			_ = Server(far, Config{MaxStreams: 2, Handle: func(s *Stream) { go func() { <-hold; echo(s) }() }}).Run()
		}()
		return Client(near, Config{}), nil
	}}
	t.Cleanup(line.Close)
	first, err := line.Get(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for { // until the peer's limit is known
		first.mu.Lock()
		told := first.told
		first.mu.Unlock()
		if told {
			break
		}
		<-time.After(time.Millisecond)
	}
	var wg sync.WaitGroup
	request := func() {
		c, err := line.Get(t.Context())
		if err != nil {
			t.Error(err)
			return
		}
		wg.Go(func() {
			// A new connection's limit may not be known yet: then the peer refuses.
			if _, _, _, err := ask(t, c, post("/"), []byte("x"), nil); err != nil && !isUnsent(err) {
				t.Error(err)
			}
		})
	}
	for i := range 2 {
		request()
		for first.InFlight() <= i {
			<-time.After(time.Millisecond)
		}
	}
	if n := made.Load(); n != 1 {
		t.Errorf("two requests have %d connections", n)
	}
	for made.Load() < maxConns {
		request()
		<-time.After(time.Millisecond)
	}
	for range 20 {
		request()
	}
	close(hold)
	wg.Wait()
	if n := made.Load(); n > maxConns {
		t.Errorf("%d connections", n)
	}
	for range 10 { // all have room again: the first is enough
		if c, err := line.Get(t.Context()); err != nil || c != first {
			t.Errorf("%p, %v, want %p", c, err, first)
		}
	}
}

// TestLineWithoutSecond: while no other connection can be made, the one that there
// is serves all, and is not asked for another with every request.
func TestLineWithoutSecond(t *testing.T) {
	var made atomic.Int64
	line := &Line{Open: func(context.Context) (*Conn, error) {
		if made.Add(1) > 1 {
			return nil, errors.New("no more")
		}
		near, far := pair(t)
		go func() { _ = Server(far, Config{MaxStreams: 1, Handle: func(s *Stream) { go echo(s) }}).Run() }()
		return Client(near, Config{}), nil
	}}
	t.Cleanup(line.Close)
	if c, err := line.Get(t.Context()); err != nil {
		t.Fatal(err)
	} else if _, _, _, err = ask(t, c, post("/"), nil, nil); err != nil { // the limit is known now
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 200 {
		wg.Go(func() {
			c, err := line.Get(t.Context())
			if err == nil {
				_, _, _, err = ask(t, c, post("/"), []byte("x"), nil)
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n := made.Load(); n > 100 {
		t.Errorf("%d attempts", n)
	}
}

// TestIdleConnectionKeepsLittle: some time after its last stream a connection gives
// back what only saves work, and goes on.
func TestIdleConnectionKeepsLittle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		server := Server(far, Config{MaxStreams: 100, Handle: func(s *Stream) { go echo(s) }})
		client := Client(near, Config{})
		go func() { _ = server.Run() }()
		go func() { _ = client.Run() }()
		for range 2 {
			var open []*Stream
			for range 90 {
				s, err := client.Open(t.Context(), post("/"), false)
				if err != nil {
					t.Fatal(err)
				}
				open = append(open, s)
			}
			for _, s := range open {
				_ = s.Finish(nil)
				if _, err := s.Response(); err != nil {
					t.Fatal(err)
				}
				if _, err := s.Next(); !errors.Is(err, io.EOF) {
					t.Fatal(err)
				}
				s.Close()
			}
			for name, c := range map[string]*Conn{"server": server, "client": client} {
				c.mu.Lock()
				if c.enc.Idle() || c.most < 2 {
					t.Errorf("the %s has shrunk at once", name)
				}
				c.mu.Unlock()
			}
			time.Sleep(2*calmAfter + time.Second) //nolint:forbidigo // virtual time
			synctest.Wait()
			for name, c := range map[string]*Conn{"server": server, "client": client} {
				c.mu.Lock()
				if !c.enc.Idle() || c.block != nil || c.most != 0 || c.calm != nil {
					t.Errorf("the %s keeps what it does not need", name)
				}
				c.mu.Unlock()
			}
		}
		client.Close()
		server.Close()
	})
}

// TestLineGrowsWithWhatWaits: a connection on which more waits to be written than
// may is full, too, however few streams it has; and of two, the first is used as
// soon as it has room, so that the other ends by being idle.
func TestLineGrowsWithWhatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var made []*Conn
		var far []net.Conn
		line := &Line{Open: func(context.Context) (*Conn, error) {
			near, other := net.Pipe() // which takes nothing until somebody reads
			c := Client(near, Config{Idle: time.Minute})
			made, far = append(made, c), append(far, other)
			return c, nil
		}}
		take := func(want int) *Conn {
			t.Helper()
			c, err := line.Get(t.Context())
			synctest.Wait()
			if err != nil || len(made) != want {
				t.Fatalf("%d connections, %v; want %d", len(made), err, want)
			}
			return c
		}
		first := take(1)
		s, err := first.Open(t.Context(), post("/"), false)
		if err != nil {
			t.Fatal(err)
		}
		first.mu.Lock()
		first.sendWindow, s.sendWindow = 1<<30, 1<<30
		first.mu.Unlock()
		sent := make(chan error, 1)
		go func() { sent <- s.Write(make([]byte, 2*highWater)) }()
		synctest.Wait()
		take(2) // is begun, and this request has its turn on the first
		if c := take(2); c != made[1] {
			t.Error("the connection that is not full is not used")
		}
		for _, c := range far {
			go func() {
				_ = Server(c, Config{StreamWindow: 1 << 20, Handle: func(s *Stream) { go echo(s) }}).Run()
			}()
		}
		if err := <-sent; err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if c := take(2); c != first {
			t.Error("the first has room again, and is not used")
		}
		time.Sleep(time.Minute + time.Second) //nolint:forbidigo // virtual time
		synctest.Wait()
		if made[1].Usable() || !first.Usable() {
			t.Errorf("after a minute the second is there: %v, the first, which is busy: %v", made[1].Usable(), first.Usable())
		}
		s.Close()
		line.Close()
		synctest.Wait()
	})
}
