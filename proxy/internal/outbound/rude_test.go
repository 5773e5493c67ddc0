package outbound

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"
)

// rude is a backend that reads one head and answers as told, then does with the
// connection what is told.
func rude(t *testing.T, answer string, then func(*net.TCPConn)) netip.AddrPort {
	t.Helper()
	lis := listenLoopback(t)
	t.Cleanup(func() { _ = lis.Close() })
	go func() {
		for {
			c, err := lis.Accept()
			if err != nil {
				return
			}
			go func() {
				br := bufio.NewReader(c)
				for {
					line, err := br.ReadString('\n')
					if err != nil {
						_ = c.Close()
						return
					}
					if line == "\r\n" {
						break
					}
				}
				_, _ = io.WriteString(c, answer)
				then(c.(*net.TCPConn))
			}()
		}
	}()
	return addrPort(lis)
}

func hangUp(c *net.TCPConn) { _ = c.Close() }
func reset(c *net.TCPConn)  { _ = c.SetLinger(0); _ = c.Close() }
func keep(c *net.TCPConn)   { _, _ = io.Copy(io.Discard, c); _ = c.Close() }

// TestRudeBackends: whatever a backend does, the client gets an answer that is
// whole, or sees that it is not. Alone and through two proxies.
func TestRudeBackends(t *testing.T) {
	const ok = "HTTP/1.1 200 OK\r\n"
	tests := []struct {
		name, answer string
		then         func(*net.TCPConn)
		status       int    // 0: the connection breaks
		body         string // "broken" if it must not end well
	}{
		{"says nothing and hangs up", "", hangUp, 502, ""},
		{"resets", "", reset, 502, ""},
		{"garbage", "\x00\x01\x02 garbage\r\n\r\n", hangUp, 502, ""},
		{"another protocol", "220 mail.example ESMTP\r\n", keep, 502, ""},
		{"half a status line", "HTTP/1.1 20", hangUp, 502, ""},
		{"half a head", ok + "X-Half: ", hangUp, 502, ""},
		{"a head without end", ok + strings.Repeat("X-Big: "+strings.Repeat("y", 1000)+"\r\n", 2000), hangUp, 502, ""},
		{"a control character in a field", ok + "X: a\x00b\r\nContent-Length: 0\r\n\r\n", keep, 502, ""},
		{"a space in a field's name", ok + "X Y: a\r\nContent-Length: 0\r\n\r\n", keep, 200, ""}, // without it
		{"a negative length", ok + "Content-Length: -1\r\n\r\n", keep, 502, ""},
		{"two lengths", ok + "Content-Length: 1\r\nContent-Length: 2\r\n\r\nab", keep, 502, ""},
		{"an unknown coding", ok + "Transfer-Encoding: rot13\r\n\r\nab", keep, 502, ""},
		{"length too long", ok + "Content-Length: 10\r\n\r\nshort", hangUp, 200, "broken"},
		{"length too long, reset", ok + "Content-Length: 10\r\n\r\nshort", reset, 200, "broken"},
		{"length too short", ok + "Content-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\nX-Stolen: yes\r\n\r\n", keep, 200, "ok"},
		{"chunks without end", ok + "Transfer-Encoding: chunked\r\n\r\n2\r\nok\r\n", hangUp, 200, "broken"},
		{"a bad chunk", ok + "Transfer-Encoding: chunked\r\n\r\n2\r\nok\r\nzz\r\n", keep, 200, "broken"},
		{"until the end", "HTTP/1.1 200 OK\r\n\r\nok", hangUp, 200, "ok"},
		{"1.0 until the end", "HTTP/1.0 200 OK\r\n\r\nok", hangUp, 200, "ok"},
		{"hints, then an answer", "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" + ok + "Content-Length: 2\r\n\r\nok", keep, 200, "ok"},
		{"a flood of hints", strings.Repeat("HTTP/1.1 103 Early Hints\r\nX: "+strings.Repeat("y", 4000)+"\r\n\r\n", 1000), hangUp, 502, ""},
		{"a flood of little hints", strings.Repeat("HTTP/1.1 102 Processing\r\n\r\n", 100000), hangUp, 502, ""},
		{"coded 204", "HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n", keep, 204, ""},
		{"switches unasked", "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\nbytes", keep, 502, ""},
		{"trailers", ok + "Transfer-Encoding: chunked\r\nTrailer: X-T\r\n\r\n2\r\nok\r\n0\r\nX-T: y\r\n\r\n", keep, 200, "ok"},
		{"status 99", "HTTP/1.1 099 Odd\r\nContent-Length: 0\r\n\r\n", keep, 502, ""},
		{"status 1000", "HTTP/1.1 1000 Odd\r\nContent-Length: 0\r\n\r\n", keep, 502, ""},
		{"status 999", "HTTP/1.1 999 Odd\r\nContent-Length: 2\r\n\r\nok", keep, 999, "ok"},
	}
	p := startPair(t, "all-authenticated")
	for i, tt := range tests {
		for _, way := range []string{"alone", "two proxies"} {
			t.Run(tt.name+", "+way, func(t *testing.T) {
				addr := rude(t, tt.answer, tt.then)
				authority := fmt.Sprintf("rude%d.test:80", i)
				if way == "alone" {
					authority = "alone" + authority
					p.controls.service(authority, plain(addr))
				} else {
					p.expose(authority, addr)
				}
				conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", p.addr)
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close()
				_ = conn.SetDeadline(time.Now().Add(time.Minute))
				_, _ = fmt.Fprintf(conn, "GET http://%s/ HTTP/1.1\r\nHost: %s\r\n\r\n", authority, authority)
				br := bufio.NewReader(conn)
				res, err := http.ReadResponse(br, nil)
				for err == nil && res.StatusCode/100 == 1 && res.StatusCode != 101 {
					res, err = http.ReadResponse(br, nil)
				}
				if err != nil {
					t.Fatalf("no answer: %v", err)
				}
				var body bytes.Buffer
				_, err = io.Copy(&body, res.Body)
				if late, ok := errors.AsType[net.Error](err); ok && late.Timeout() {
					t.Fatalf("status %d, and the body hangs", res.StatusCode)
				}
				switch {
				case len(res.Header["X Y"]) > 0 || res.Header.Get("X-Stolen") != "":
					t.Errorf("headers %v", res.Header)
				case res.StatusCode != tt.status:
					t.Errorf("status %d, want %d (%s)", res.StatusCode, tt.status, res.Header.Get("L5d-Proxy-Error"))
				case tt.body == "broken" && err == nil:
					t.Errorf("half an answer %q passed for a whole one", body.String())
				case tt.body != "broken" && (err != nil || body.String() != tt.body):
					t.Errorf("body %q, %v, want %q", body.String(), err, tt.body)
				}
			})
		}
	}
}
