package inbound

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/netip"
	"testing"
	"time"

	"github.com/weftmesh/weft/proxy/internal/config"
	"github.com/weftmesh/weft/proxy/internal/header"
	"github.com/weftmesh/weft/proxy/internal/origdst"
)

// slowApp says "done", to a request for /slow when finish is closed; inside is closed
// when that has come.
func slowApp(t *testing.T) (web netip.AddrPort, inside, finish chan struct{}) {
	t.Helper()
	inside, finish = make(chan struct{}), make(chan struct{})
	return app(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			close(inside)
			<-finish
		}
		_, _ = io.WriteString(w, "done")
	})), inside, finish
}

func TestDrain(t *testing.T) {
	web, inside, finish := slowApp(t)
	echo := tcpApp(t, func(c *net.TCPConn) { _, _ = io.Copy(c, c) })
	w := newWorld(t, open).run()
	friend := w.ca.Local(t, alice)

	tunnel := w.direct(friend, header.Header{Port: echo.Port()})
	_, _ = io.WriteString(tunnel, "a")
	if _, err := io.ReadFull(tunnel, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	toWeb := func(s header.Session) *http.Client {
		return client(t, s == header.HTTP2, func() (net.Conn, error) { return w.direct(friend, header.Header{Port: web.Port(), Session: s}), nil })
	}
	idle := toWeb(header.HTTP1)
	if res, _ := get(t, idle, "http://web/"); res.StatusCode != 200 {
		t.Fatalf("status %d", res.StatusCode)
	}
	answer := make(chan string, 1)
	go func() {
		res, err := toWeb(header.HTTP2).Get("http://web/slow")
		if err != nil {
			answer <- err.Error()
			return
		}
		defer res.Body.Close()
		b, _ := io.ReadAll(res.Body)
		answer <- string(b)
	}()
	<-inside

	w.drain.Begin()
	eventually(t, "the listener to close", func() bool {
		c, err := net.Dial("tcp", w.in.Addr().String())
		if err == nil {
			_ = c.Close()
		}
		return err != nil
	})
	close(finish)
	if got := <-answer; got != "done" {
		t.Errorf("the request in flight got %q", got)
	}
	// The idle connection is gone; the tunnel is waited for.
	eventually(t, "only the tunnel to be open", func() bool { return w.drain.Open() == 1 })
	_, _ = io.WriteString(tunnel, "b")
	if _, err := io.ReadFull(tunnel, make([]byte, 1)); err != nil {
		t.Errorf("the tunnel was cut: %v", err)
	}
	select {
	case <-w.stopped:
		t.Error("stopped with a tunnel open")
	default:
	}
	_ = tunnel.Close()
	select {
	case <-w.stopped:
	case <-time.After(time.Minute):
		t.Error("not stopped after the last connection")
	}
}

func TestRunningConnectionsSurviveRenewal(t *testing.T) {
	echo := tcpApp(t, func(c *net.TCPConn) { _, _ = io.Copy(c, c) })
	w := newWorld(t, open).run()
	w.ca.Life(2 * time.Second)
	friend := w.ca.Local(t, alice) // its certificate is renewed several times below
	c := w.direct(friend, header.Header{Port: echo.Port()})
	r := bufio.NewReader(c)
	first := friend.Expires()
	eventually(t, "two renewals", func() bool { return friend.Expires().Sub(first) > time.Second })
	_, _ = io.WriteString(c, "still here\n")
	if line, err := r.ReadString('\n'); line != "still here\n" {
		t.Errorf("read %q, %v", line, err)
	}
}

func TestPortsAreForgotten(t *testing.T) {
	w := newWorld(t).run()
	known := func() int {
		w.in.policies.mu.Lock()
		defer w.in.policies.mu.Unlock()
		return len(w.in.policies.ports)
	}
	eventually(t, "the admin port to be known", func() bool { return known() == 1 })
	var releases []func()
	for port := uint16(1000); ; port++ {
		_, release, err := w.in.policies.get(port)
		if err != nil {
			break
		}
		releases = append(releases, release)
	}
	if len(releases) != maxPorts-1 {
		t.Errorf("%d ports could be used at once, want %d", len(releases), maxPorts-1)
	}
	releases[0]()
	if _, release, err := w.in.policies.get(5000); err != nil {
		t.Errorf("no room although a port is not used: %v", err)
	} else {
		release()
	}
	for _, release := range releases {
		release()
	}
	eventually(t, "unused ports to be forgotten", func() bool { return known() == 1 })
}

func TestKnownPortsAreWatchedFromTheStart(t *testing.T) {
	w := newWorld(t, func(c *config.Config) { c.Policy.Ports = config.Ports{{Low: 80, High: 81}} }).run()
	eventually(t, "watches of ports 80, 81 and 4191", func() bool {
		w.policy.mu.Lock()
		defer w.policy.mu.Unlock()
		return w.policy.watches[80] == 1 && w.policy.watches[81] == 1 && w.policy.watches[4191] == 1
	})
}

func TestAdminPort(t *testing.T) {
	w := newWorld(t).run()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = w.in.ServeAdmin(t.Context(), l, hello) }()
	w.allow(4191, detectServer(onlyIdentity(alice)))
	friend := w.ca.Local(t, alice)
	plain := func() (net.Conn, error) {
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP("127.0.0.9")}}
		return d.DialContext(t.Context(), "tcp", l.Addr().String())
	}
	secure := func() (net.Conn, error) {
		c, err := plain()
		if err != nil {
			return nil, err
		}
		return tlsClient(c, friend)
	}
	for _, tt := range []struct {
		open func() (net.Conn, error)
		path string
		want int
	}{{plain, "/ready", 200}, {plain, "/metrics", 403}, {secure, "/metrics", 200}} {
		c := client(t, false, tt.open)
		if res, _ := get(t, c, "http://proxy"+tt.path); res.StatusCode != tt.want {
			t.Errorf("%s: %d, want %d", tt.path, res.StatusCode, tt.want)
		}
	}
	labels := map[string]string{"direction": "inbound", "target_port": portText(origdst.AddrPort(l.Addr()).Port()), "client_id": alice, "status_code": "200", "classification": "success"}
	eventually(t, "the request to be counted", func() bool { return w.seriesOf("response_total", labels) == 1 })
}
