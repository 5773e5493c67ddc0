package hook_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weftmesh/weft/services/kit/hook"
)

// The API server makes more connections than it needs at once, and uses them
// later: a call must not fail because of the age of its connection, and neither
// may the next one. A review that stops coming ends its call.
func TestCallsOnOldConnections(t *testing.T) {
	dir := t.TempDir()
	pair(t, dir, "webhook")
	synctest.Test(t, func(t *testing.T) {
		lis := &pipes{conns: make(chan net.Conn), closed: make(chan struct{})}
		s := hook.Server{Handler: answering(), Certificates: certificates(dir, nil)}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- s.Serve(ctx, lis) }()
		defer func() {
			cancel()
			if err := <-done; err != nil {
				t.Errorf("Serve() = %v", err)
			}
		}()
		body := `{"kind":"AdmissionReview"}`
		connect := func() (net.Conn, *bufio.Reader) {
			near, far := net.Pipe()
			lis.conns <- far
			conn := tls.Client(near, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}}) // as the API server does
			if err := conn.HandshakeContext(t.Context()); err != nil {
				t.Fatal(err)
			}
			return conn, bufio.NewReader(conn)
		}
		call := func(conn net.Conn, in *bufio.Reader, body string) (int, error) {
			for _, part := range []string{fmt.Sprintf("POST / HTTP/1.1\r\nHost: webhook\r\nContent-Length: %d\r\n\r\n", len(body)), body} {
				if _, err := conn.Write([]byte(part)); err != nil { // a body of its own read, as large ones are
					return 0, err
				}
			}
			resp, err := http.ReadResponse(in, nil)
			if err != nil {
				return 0, err
			}
			return resp.StatusCode, resp.Body.Close()
		}
		for _, age := range []time.Duration{0, 9 * time.Second, 11 * time.Second, 14 * time.Second, 16 * time.Second, 89 * time.Second} {
			conn, in := connect()
			for _, which := range []string{"first", "next"} {
				time.Sleep(age) //nolint:forbidigo // virtual time
				if code, err := call(conn, in, body); code != http.StatusOK || err != nil {
					t.Errorf("%s call after %s: %d, %v", which, age, code, err)
				}
			}
			_ = conn.Close()
		}

		conn, in := connect()
		start := time.Now()
		_, err := fmt.Fprintf(conn, "POST / HTTP/1.1\r\nHost: webhook\r\nContent-Length: %d\r\n\r\n%s", len(body)+1, body)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatal(err)
		}
		took := time.Since(start)
		_ = resp.Body.Close()
		_ = conn.Close()
		if resp.StatusCode != http.StatusInternalServerError || took != 10*time.Second {
			t.Errorf("half a review: %d after %s", resp.StatusCode, took)
		}
	})
}
