package inbound

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
)

// TestConnectionsOfHosts: the application sees one connection for each Host, and one
// for each request that names none (spec/proxy.md §17, 30 and 31).
func TestConnectionsOfHosts(t *testing.T) {
	var conns atomic.Int64
	at := tcpApp(t, func(c *net.TCPConn) {
		n := conns.Add(1)
		for br := bufio.NewReader(c); ; {
			req, err := http.ReadRequest(br)
			if err != nil {
				return
			}
			_, _ = io.Copy(io.Discard, req.Body)
			body := fmt.Sprint(n)
			if _, err := fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(body), body); err != nil {
				return
			}
		}
	})
	w := newWorld(t, open).redirectTo(at).run()
	client := w.dialPlain()
	br := bufio.NewReader(client)
	for _, step := range []struct{ request, on string }{
		{"GET / HTTP/1.1\r\nHost: foo.bar\r\n\r\n", "1"},
		{"POST / HTTP/1.1\r\nHost: foo.bar\r\nContent-Length: 2\r\n\r\nhi", "1"},
		{"GET / HTTP/1.1\r\nHost: bar.baz\r\n\r\n", "2"},
		{"GET / HTTP/1.1\r\nHost: bar.baz\r\n\r\n", "2"},
		{"GET / HTTP/1.1\r\nHost: foo.bar\r\n\r\n", "1"},
		{"GET http://foo.bar/ HTTP/1.1\r\nHost: foo.bar\r\n\r\n", "3"},
		{"GET / HTTP/1.1\r\nHost:\r\n\r\n", "4"},
		{"GET / HTTP/1.1\r\nHost:\r\n\r\n", "5"},
		{"GET / HTTP/1.1\r\nHost: quux\r\n\r\n", "6"},
		{"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", "7"},
		{"GET / HTTP/1.0\r\nHost: foo.bar\r\nConnection: keep-alive\r\n\r\n", "8"},
		{"GET / HTTP/1.1\r\nHost: foo.bar\r\n\r\n", "1"},
	} {
		if _, err := io.WriteString(client, step.request); err != nil {
			t.Fatal(err)
		}
		res, err := http.ReadResponse(br, nil)
		if err != nil {
			t.Fatalf("%q: %v", step.request, err)
		}
		body, _ := io.ReadAll(res.Body)
		if string(body) != step.on {
			t.Errorf("%q: on connection %s, not %s", step.request, body, step.on)
		}
	}
}
