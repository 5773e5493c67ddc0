package h1

import (
	"bufio"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/weftmesh/weft/proxy/internal/message"
)

// TestWhatIsPosted: neither what has been given up nor what cannot be sent twice.
func TestWhatIsPosted(t *testing.T) {
	alone(t)
	for method, want := range map[string]bool{"GET": true, "HEAD": true, "POST": false, "DELETE": false} {
		near, far := pair(t)
		c := NewCall(near, 4096)
		c.Begin(&message.Request{Version: message.HTTP11, Method: "GET", Authority: "a", Target: "/"})
		go func() {
			if _, err := http.ReadRequest(bufio.NewReader(far)); err == nil {
				_, _ = io.WriteString(far, "HTTP/1.1 204 No Content\r\n\r\n")
			}
		}()
		if err := c.Finish(nil); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Response(); err != nil || !c.Done() {
			t.Fatal(err)
		}
		c.Begin(&message.Request{Version: message.HTTP11, Method: method, Authority: "a", Target: "/"})
		if err := c.Finish(nil); err != nil || c.in.Pending() != want {
			t.Errorf("%s: %v, pending: %v", method, err, c.in.Pending())
		}
		c.in.Discard()
		c.Begin(&message.Request{Version: message.HTTP11, Method: "GET", Authority: "a", Target: "/"})
		c.Abort(message.ErrGone)
		if err := c.Finish(nil); err == nil || c.Sent() || c.in.Pending() {
			t.Errorf("given up: %v, sent: %v", err, c.Sent())
		}
		c.Close()
	}
}

// TestRequestBeforeTheEnd: one that comes just before the wait for it is ended is read
// to its end.
func TestRequestBeforeTheEnd(t *testing.T) {
	near, far := pair(t)
	c := NewConn(far, Config{})
	c.last = true
	c.leaving.Store(true)
	_ = far.SetReadDeadline(time.Unix(1, 0))
	if err := c.woken(nil, false); err != nil {
		t.Fatal(err)
	}
	_, _ = io.WriteString(near, "x")
	if err := c.in.Fill(64); err != nil {
		t.Error(err)
	}
	c.end()
}
