package inbound

import (
	"io"
	"net/http"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/weftmesh/weft/proxy/internal/header"
)

// TestBusyConnect: a process too busy to notice in time that a connection was
// made tries again, rather than to tell the client that the application is away.
func TestBusyConnect(t *testing.T) {
	w := newWorld(t)
	target := app(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") }))
	var tries atomic.Int64
	w.in.toApp.Timeout = 50 * time.Millisecond
	w.in.toApp.Control = func(string, string, syscall.RawConn) error {
		if tries.Add(1) == 1 {
			<-time.After(100 * time.Millisecond)
		}
		return nil
	}
	w.run().allow(target.Port(), detectServer(anybody()))
	c := w.direct(w.ca.Local(t, alice), header.Header{Port: target.Port(), Session: header.HTTP1})
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
	answer, err := io.ReadAll(c)
	if len(answer) < 12 || string(answer[9:12]) != "200" || tries.Load() < 2 {
		t.Errorf("after %d tries: %q, %v", tries.Load(), answer, err)
	}
}
