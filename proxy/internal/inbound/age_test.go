package inbound

import (
	"io"
	"log/slog"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weftmesh/weft/proxy/internal/door"
	"github.com/weftmesh/weft/proxy/internal/door/doortest"
	"github.com/weftmesh/weft/proxy/internal/h2"
	"github.com/weftmesh/weft/proxy/internal/message"
)

// TestConnectionsOfPeersEnd: one of HTTP/2 that asks for nothing is told to leave
// after a while, and one that is old too; what is under way on it ends first.
func TestConnectionsOfPeersEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := &Inbound{log: slog.New(slog.DiscardHandler)}
		d := in.newDoor()
		hold := make(chan struct{})
		serve := func(c message.Client) {
			if c.Request().Target == "/hold" {
				<-hold
			}
			_ = c.Respond(&message.Response{Status: 200})
			_ = c.Finish(nil)
		}
		pass := func(d time.Duration) {
			time.Sleep(d) //nolint:forbidigo // virtual time
			synctest.Wait()
		}
		begin := func() (c *h2.Conn, over *atomic.Bool) {
			near, far := net.Pipe()
			over = new(atomic.Bool)
			go d.Serve(far, door.HTTP2, serve, func() { over.Store(true) })
			c = h2.Client(near, h2.Config{})
			go func() { _ = c.Run() }()
			return c, over
		}
		ask := func(c *h2.Conn, target string) error {
			s, err := c.Open(t.Context(), &message.Request{Method: "GET", Authority: "web", Target: target}, true)
			if err != nil {
				return err
			}
			defer s.Close()
			if _, err := s.Response(); err != nil {
				return err
			}
			if _, err = s.Next(); err == io.EOF { //nolint:errorlint // as message.Body says
				return nil
			}
			return err
		}
		c, over := begin()
		for range 3 {
			if err := ask(c, "/"); err != nil {
				t.Fatal(err)
			}
			pass(idleAfter - time.Second)
		}
		if over.Load() {
			t.Error("it has ended without having been idle for long")
		}
		pass(5 * time.Second)
		if c.Usable() || !over.Load() {
			t.Errorf("after %v of idleness it takes requests: %v, has ended: %v", idleAfter, c.Usable(), over.Load())
		}

		c, over = begin()
		held := make(chan error, 1)
		go func() { held <- ask(c, "/hold") }()
		pass(maxAge - maxAge/10)
		if !c.Usable() {
			t.Error("it is told to leave before it is old")
		}
		pass(maxAge/5 + 10*time.Second)
		if c.Usable() || over.Load() {
			t.Errorf("old, it takes requests: %v, has ended with one under way: %v", c.Usable(), over.Load())
		}
		close(hold)
		if err := <-held; err != nil {
			t.Errorf("the request under way: %v", err)
		}
		pass(time.Second)
		if !over.Load() {
			t.Error("it goes on without anything to do")
		}
		<-d.Shutdown()
		c.Close()
		synctest.Wait()
	})
}

// TestAgeOfTheConfiguration: a peer's connection is as old as the
// environment lets it become.
func TestAgeOfTheConfiguration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const age = 8 * time.Minute // sooner than it ends for idleness
		in := &Inbound{log: slog.New(slog.DiscardHandler)}
		in.cfg.Inbound.Server.MaxConnectionAge = age
		doortest.EndsByAge(t, in.newDoor(), age)
	})
}
