package h1

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weftmesh/weft/proxy/internal/clock"
	"github.com/weftmesh/weft/proxy/internal/message"
)

// piped is a pool of connections to servers that answer every request with 200;
// open is how many of the connections are open.
func piped() (p *Pool, open *atomic.Int64) {
	open = new(atomic.Int64)
	return &Pool{Idle: time.Second, Dial: func(context.Context) (net.Conn, error) {
		near, far := net.Pipe()
		open.Add(1)
		go func() {
			defer open.Add(-1)
			b := make([]byte, 4096)
			for {
				if _, err := far.Read(b); err != nil {
					return
				}
				if _, err := io.WriteString(far, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"); err != nil {
					return
				}
			}
		}()
		return near, nil
	}}, open
}

// ask makes one request, and reports whether its connection had been used before.
func ask(t *testing.T, p *Pool, host Host) bool {
	t.Helper()
	c, err := p.Get(t.Context(), Want{Host: host})
	if err != nil {
		t.Fatal(err)
	}
	used := c.Used()
	c.Begin(&message.Request{Version: message.HTTP11, Method: "GET", Authority: host.Name, Target: "/", Absolute: host.Absolute})
	if err := c.Finish(nil); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Response(); err != nil {
		t.Fatal(err)
	}
	p.Put(c, clock.Now())
	return used
}

func TestPoolKeepsHostsApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, open := piped()
		a, b := Host{Name: "a"}, Host{Name: "b"}
		for i, step := range []struct {
			host Host
			used bool
		}{
			{a, false},
			{a, true},
			{b, false},
			{b, true},
			{a, true},
			{Host{Name: "a", Absolute: true}, false},
			{a, true},
		} {
			if used := ask(t, p, step.host); used != step.used {
				t.Errorf("request %d, to %v: used before: %v", i, step.host, used)
			}
		}
		synctest.Wait()
		if n := open.Load(); n != 3 {
			t.Errorf("%d connections are open, not one for each of 3 hosts", n)
		}
		time.Sleep(2 * time.Second) //nolint:forbidigo // virtual time
		synctest.Wait()
		if n := open.Load(); n != 0 || p.kept != 0 || p.hosts != nil {
			t.Errorf("%d connections are open when all have been idle for long; %d kept, hosts %v", n, p.kept, p.hosts)
		}
		if ask(t, p, a) {
			t.Error("a closed connection was used")
		}
		p.Close()
		synctest.Wait()
		if n := open.Load(); n != 0 {
			t.Errorf("%d connections are open after Close", n)
		}
	})
}

// A client that names one host after the other costs a bounded number of
// connections, and those of the hosts that it goes on with stay.
func TestPoolBoundsHosts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, open := piped()
		p.Idle = time.Hour
		favourite := Host{Name: "favourite"}
		ask(t, p, favourite)
		for i := range 4 * maxHosts {
			time.Sleep(time.Millisecond) //nolint:forbidigo // virtual time
			ask(t, p, Host{Name: fmt.Sprint(i)})
			if !ask(t, p, favourite) {
				t.Fatalf("after %d other hosts the favourite's connection was closed", i)
			}
		}
		synctest.Wait()
		if n := open.Load(); n > maxHosts || n != int64(p.kept) {
			t.Errorf("%d connections are open, %d are counted, of %d hosts", n, p.kept, maxHosts)
		}
		p.Close()
		synctest.Wait()
	})
}
