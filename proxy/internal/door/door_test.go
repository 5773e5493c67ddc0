package door

import (
	"io"
	"net"
	"net/http"
	"testing"
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
