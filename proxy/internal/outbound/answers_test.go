package outbound

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestAnswersKeepTheirFraming: what an application's answer says of its body is what
// the client reads, alone and over HTTP/2 between two proxies (spec/proxy.md §9.4).
func TestAnswersKeepTheirFraming(t *testing.T) {
	const ok = "HTTP/1.1 200 OK\r\n"
	tests := []struct {
		name, method, answer string
		ends                 bool // the connection, with the answer
		status               int
		length               string // Content-Length as it was written; "-" is none
		body, trailer        string
	}{
		{"HEAD with a length", "HEAD", ok + "Content-Length: 1234\r\n\r\n", false, 200, "1234", "", ""},
		{"HEAD without", "HEAD", ok + "\r\n", false, 200, "-", "", ""},
		{"HEAD with a coding", "HEAD", ok + "Transfer-Encoding: chunked\r\n\r\n", false, 200, "-", "", ""},
		{"HEAD of nothing", "HEAD", ok + "Content-Length: 0\r\n\r\n", false, 200, "0", "", ""},
		{"304 with a length", "GET", "HTTP/1.1 304 Not Modified\r\nContent-Length: 1234\r\nETag: \"x\"\r\n\r\n", false, 304, "1234", "", ""},
		{"304 without", "GET", "HTTP/1.1 304 Not Modified\r\n\r\n", false, 304, "-", "", ""},
		{"204", "GET", "HTTP/1.1 204 No Content\r\n\r\n", false, 204, "-", "", ""},
		{"204 with a length", "GET", "HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n", false, 204, "-", "", ""},
		{"205", "GET", "HTTP/1.1 205 Reset Content\r\nContent-Length: 0\r\n\r\n", false, 205, "0", "", ""},
		{"nothing", "GET", ok + "Content-Length: 0\r\n\r\n", false, 200, "0", "", ""},
		{"a length", "POST", ok + "Content-Length: 2\r\n\r\nok", false, 200, "2", "ok", ""},
		{"two that agree", "GET", ok + "Content-Length: 2\r\nContent-Length: 2\r\n\r\nok", false, 200, "2", "ok", ""},
		{"chunks", "GET", ok + "Transfer-Encoding: chunked\r\n\r\n1\r\no\r\n1\r\nk\r\n0\r\n\r\n", false, 200, "-", "ok", ""},
		{"no chunks", "GET", ok + "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", false, 200, "-", "", ""},
		{"chunks and a length", "GET", ok + "Content-Length: 99\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", false, 200, "-", "ok", ""},
		{"a trailer", "GET", ok + "Trailer: X-Sum\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nX-Sum: 7\r\n\r\n", false, 200, "-", "ok", "7"},
		{"until the end", "GET", ok + "\r\nok", true, 200, "-", "ok", ""},
		{"nothing until the end", "GET", ok + "\r\n", true, 200, "-", "", ""},
		{"1.0 with a length", "GET", "HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok", true, 200, "2", "ok", ""},
		{"without a reason", "GET", "HTTP/1.1 200\r\nContent-Length: 2\r\n\r\nok", false, 200, "2", "ok", ""},
		{"an odd status", "GET", "HTTP/1.1 299 Fine\r\nContent-Length: 2\r\n\r\nok", false, 299, "2", "ok", ""},
		{"a redirect", "GET", "HTTP/1.1 302 Found\r\nLocation: /elsewhere\r\nContent-Length: 0\r\n\r\n", false, 302, "0", "", ""},
		{"hints first", "GET", "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" + ok + "Content-Length: 2\r\n\r\nok", false, 200, "2", "ok", ""},
		{"line ends without CR", "GET", "HTTP/1.1 200 OK\nContent-Length: 2\n\nok", false, 200, "2", "ok", ""},
	}
	app := acceptEach(t, func(c net.Conn) {
		for br := bufio.NewReader(c); ; {
			req, err := http.ReadRequest(br)
			if err != nil {
				return
			}
			i, err := strconv.Atoi(strings.TrimPrefix(req.URL.Path, "/"))
			if err != nil {
				return
			}
			if _, err := io.WriteString(c, tests[i].answer); err != nil || tests[i].ends {
				return
			}
		}
	})
	p := startPair(t, "all-authenticated")
	p.controls.service("alone.test:80", plain(app))
	p.expose("two.test:80", app)
	for i, tt := range tests {
		for _, way := range []string{"alone", "two"} {
			t.Run(tt.name+", "+way, func(t *testing.T) {
				conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", p.addr)
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = conn.Close() }()
				_ = conn.SetDeadline(time.Now().Add(time.Minute))
				_, _ = fmt.Fprintf(conn, "%s http://%s.test/%d HTTP/1.1\r\nHost: x\r\n\r\n", tt.method, way, i)
				br := bufio.NewReader(conn)
				res, err := http.ReadResponse(br, &http.Request{Method: tt.method})
				for err == nil && res.StatusCode/100 == 1 {
					res, err = http.ReadResponse(br, &http.Request{Method: tt.method})
				}
				if err != nil {
					t.Fatal(err)
				}
				body, err := io.ReadAll(res.Body)
				length := strings.Join(res.Header.Values("Content-Length"), ",")
				if length == "" {
					length = "-"
				}
				want := tt.length
				if tt.name == "no chunks" && way == "two" {
					want = "0" // HTTP/2 tells with the head that nothing follows
				}
				if err != nil || res.StatusCode != tt.status || string(body) != tt.body || length != want || res.Trailer.Get("X-Sum") != tt.trailer {
					t.Errorf("%d, length %s, %q, trailer %v, %v", res.StatusCode, length, body, res.Trailer, err)
				}
				if coded := len(res.TransferEncoding) > 0; coded != (want == "-" && tt.method != "HEAD" && tt.status == 200) {
					t.Errorf("coded: %v", res.TransferEncoding)
				}
				if loc := res.Header.Get("Location"); tt.status == 302 && loc != "/elsewhere" {
					t.Errorf("location %q", loc)
				}
			})
		}
	}
}
