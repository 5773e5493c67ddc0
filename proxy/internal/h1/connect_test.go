package h1

import (
	"io"
	"strings"
	"testing"

	"github.com/weftmesh/weft/proxy/internal/message"
)

// What a client sends behind a CONNECT is meant for the tunnel: when there is none it
// is no request.
func TestRefusedConnectEndsTheConnection(t *testing.T) {
	var asked []string
	near, _, done := serve(t, func(x *Exchange) {
		asked = append(asked, x.Request().Method)
		_ = x.Respond(&message.Response{Status: 405})
		_ = x.Finish(nil)
	})
	_, _ = io.WriteString(near, "CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n")
	answer, err := io.ReadAll(near)
	if err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 405 ") || strings.Count(string(answer), "HTTP/1.1") != 1 || !strings.Contains(string(answer), "Connection: close\r\n") {
		t.Errorf("%q, %v", answer, err)
	}
	<-done
	if len(asked) != 1 {
		t.Errorf("%q were taken for requests", asked)
	}
}
