package inbound

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"testing"

	"github.com/weftmesh/weft/proxy/internal/config"
	"github.com/weftmesh/weft/proxy/internal/fate"
)

// rude is an application that reads a request, answers with these bytes and ends
// the connection.
func rude(t *testing.T, answer string) func(*net.TCPConn) {
	t.Helper()
	return func(c *net.TCPConn) {
		_, _ = http.ReadRequest(bufio.NewReader(c))
		_, _ = io.WriteString(c, answer)
		_ = c.Close()
	}
}

// TestFate: a peer is told whether the application may have seen the request.
func TestFate(t *testing.T) {
	for _, tt := range []struct {
		name, answer string
		status       int
		want         fate.Fate
	}{
		{"the connection ends", "", 502, fate.Lost},
		{"it does not speak HTTP", "SSH-2.0-x\r\n", 502, ""},
		{"it says so itself", "HTTP/1.1 503 No\r\nWeft-Request-Fate: unsent\r\nContent-Length: 0\r\n\r\n", 503, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, func(c *config.Config) { c.Policy.Default = "all-unauthenticated" }).redirectTo(tcpApp(t, rude(t, tt.answer))).run()
			friend := w.ca.Local(t, alice)
			c := client(t, false, func() (net.Conn, error) { return w.tls(friend) })
			res, _ := get(t, c, "http://web/")
			if got := fate.Take(res.Header); res.StatusCode != tt.status || got != tt.want {
				t.Errorf("%d, fate %q, want %d, %q", res.StatusCode, got, tt.status, tt.want)
			}
		})
	}
}
