package door

import (
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"

	"github.com/weftmesh/weft/proxy/internal/message"
)

func pair(t *testing.T) (near, far net.Conn) {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	if near, err = new(net.Dialer).DialContext(t.Context(), "tcp", l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if far, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = near.Close(); _ = far.Close() })
	_ = near.SetDeadline(time.Now().Add(20 * time.Second))
	return near, far
}

func answer(c message.Client) {
	if c.Request().Target == "/panic" {
		panic("a bug")
	}
	_ = c.Respond(&message.Response{Version: c.Request().Version, Status: 204})
	_ = c.Finish(nil)
}

// TestEither: what a connection speaks is found out by its first bytes.
func TestEither(t *testing.T) {
	d := New(Config{})
	near, far := pair(t)
	go d.Serve(far, Either, answer, func() {})
	if _, err := io.WriteString(near, "P"); err != nil { // as the preface begins
		t.Fatal(err)
	}
	if _, err := io.WriteString(near, "OST / HTTP/1.1\r\nHost: a\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 27)
	if _, err := io.ReadFull(near, got); err != nil || string(got) != "HTTP/1.1 204 No Content\r\n\r\n" {
		t.Errorf("%q, %v", got, err)
	}
	near, far = pair(t)
	go d.Serve(far, Either, answer, func() {})
	cc, err := (&http2.Transport{AllowHTTP: true}).NewClientConn(near) //nolint:staticcheck // http.Transport's own wants to dial
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]bool{"/": true, "/panic": false} {
		req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://a"+path, nil)
		res, err := cc.RoundTrip(req)
		if (err == nil) != want {
			t.Errorf("%s: %v", path, err)
		}
		if err == nil {
			_ = res.Body.Close()
		}
	}
	near, far = pair(t)
	_ = near.Close()
	d.Serve(far, Either, answer, func() {}) // ends
	<-d.Shutdown()
	near, far = pair(t)
	d.Serve(far, HTTP1, answer, func() {}) // is turned away
	if _, err := near.Read(make([]byte, 1)); err == nil {
		t.Error("served after the end")
	}
	d.Close()
}

// A client that has not said what it speaks, or not wholly, is idle: the door does not
// wait for it.
func TestShutdownOfNewcomers(t *testing.T) {
	for name, said := range map[string]string{"nothing": "", "as both begin": "P", "of the preface": "PRI * HTTP/2.0\r\n"} {
		synctest.Test(t, func(t *testing.T) {
			near, far := net.Pipe()
			d := New(Config{})
			over := make(chan struct{})
			go d.Serve(far, Either, answer, func() { close(over) })
			if _, err := io.WriteString(near, said); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			began := time.Now()
			<-d.Shutdown()
			<-over
			if took := time.Since(began); took > 0 {
				t.Errorf("%s: it took %v", name, took)
			}
			if _, err := near.Read(make([]byte, 1)); err == nil {
				t.Errorf("%s: it was answered", name)
			}
		})
	}
}

// The door does not forget a connection that it has waited for, nor count it twice.
func TestCloseOfNewcomers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		d := New(Config{})
		over := make(chan struct{})
		go d.Serve(far, Either, answer, func() { close(over) })
		synctest.Wait()
		d.Close()
		<-over
		<-d.Shutdown()
		_ = near.Close()
	})
}

// A client of either protocol that has said a part of what it wants holds the door for
// a moment only.
func TestShutdownOfTheHalfSaid(t *testing.T) {
	for name, said := range map[string]string{
		"half a head":    "GET / HTTP/1.1\r\nHo",
		"a preface only": "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
		"half a frame":   "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00\x00\x00\x10\x01\x04\x00\x00\x00\x01\x00",
	} {
		synctest.Test(t, func(t *testing.T) {
			near, far := net.Pipe()
			d := New(Config{})
			over := make(chan struct{})
			go d.Serve(far, Either, answer, func() { close(over) })
			go func() { _, _ = io.Copy(io.Discard, near) }()
			if _, err := io.WriteString(near, said); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			began := time.Now()
			<-d.Shutdown()
			<-over
			if took := time.Since(began); took > 2*time.Second {
				t.Errorf("%s: it took %v", name, took)
			}
			_ = near.Close()
		})
	}
}
