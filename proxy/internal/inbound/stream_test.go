package inbound

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/weftmesh/weft/proxy/internal/config"
	"github.com/weftmesh/weft/proxy/internal/h2"
	"github.com/weftmesh/weft/proxy/internal/header"
	"github.com/weftmesh/weft/proxy/internal/message"
)

func open(c *config.Config) { c.Policy.Default = "all-unauthenticated" }

// tcpApp answers everything it has read, once the client has ended its side.
func tcpApp(t *testing.T, serve func(*net.TCPConn)) netip.AddrPort {
	t.Helper()
	l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.AcceptTCP()
			if err != nil {
				return
			}
			go func() { defer func() { _ = c.Close() }(); serve(c) }()
		}
	}()
	return l.Addr().(*net.TCPAddr).AddrPort()
}

func TestOpaqueHalfClose(t *testing.T) {
	at := tcpApp(t, func(c *net.TCPConn) {
		h := sha256.New()
		_, _ = io.Copy(h, c) // until the client ends its side
		_, _ = c.Write(h.Sum(nil))
	})
	w := newWorld(t, open).run()
	friend := w.ca.Local(t, alice)
	w.allow(at.Port(), opaqueServer(onlyIdentity(alice)))
	c := w.direct(friend, header.Header{Port: at.Port()})
	payload := make([]byte, 3<<20)
	for i := range payload {
		payload[i] = byte(rand.Uint32())
	}
	if _, err := c.Write(payload); err != nil {
		t.Fatal(err)
	}
	if err := c.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(c)
	want := sha256.Sum256(payload)
	if err != nil || !bytes.Equal(got, want[:]) {
		t.Errorf("%d bytes, %v; the payload was changed or the answer lost", len(got), err)
	}
	eventually(t, "the connection to be closed", func() bool { return w.meter("tcp_open_connections", `"src"`) == 0 })
	if got := w.meter("tcp_read_bytes_total", `"src"`, alice, `"web"`); got != float64(len(payload)) {
		t.Errorf("tcp_read_bytes_total = %v, want %d", got, len(payload))
	}
}

func TestServerSpeaksFirstOnAnOpaquePort(t *testing.T) {
	at := tcpApp(t, func(c *net.TCPConn) { _, _ = io.WriteString(c, "220 hi\r\n") })
	w := newWorld(t, open, func(c *config.Config) {
		c.Policy.OpaquePorts = config.Ports{{Low: at.Port(), High: at.Port()}}
		c.Inbound.DetectTimeout = time.Hour
	}).redirectTo(at).run()
	if line, err := bufio.NewReader(w.dialPlain()).ReadString('\n'); line != "220 hi\r\n" {
		t.Errorf("read %q, %v", line, err)
	}
}

func TestSilentClientIsClosed(t *testing.T) {
	at := tcpApp(t, func(*net.TCPConn) {})
	w := newWorld(t, open, func(c *config.Config) { c.Inbound.DetectTimeout = 50 * time.Millisecond }).redirectTo(at).run()
	if b, err := io.ReadAll(w.dialPlain()); len(b) > 0 || err != nil {
		t.Errorf("read %q, %v", b, err)
	}
	eventually(t, "the timeout to be counted", func() bool { return w.meter("inbound_tcp_errors_total", "tls detection timeout") == 1 })
}

func TestPolicyChangeEndsOpaqueConnections(t *testing.T) {
	at := tcpApp(t, func(c *net.TCPConn) { _, _ = io.Copy(c, c) })
	w := newWorld(t).run()
	friend := w.ca.Local(t, alice)
	w.allow(at.Port(), opaqueServer(onlyIdentity(alice)))
	c := w.direct(friend, header.Header{Port: at.Port()})
	r := bufio.NewReader(c)
	echo := func() error {
		if _, err := io.WriteString(c, "ping\n"); err != nil {
			return err
		}
		_, err := r.ReadString('\n')
		return err
	}
	if err := echo(); err != nil {
		t.Fatal(err)
	}
	w.allow(at.Port(), opaqueServer(anybody(), onlyIdentity(alice))) // still allowed
	if err := echo(); err != nil {
		t.Fatalf("after a change that allows: %v", err)
	}
	w.allow(at.Port(), opaqueServer(onlyIdentity(mallet)))
	if _, err := io.ReadAll(r); err != nil && !isIO(err) {
		t.Errorf("ended with %v", err)
	}
	if got := w.meter("inbound_tcp_authz_terminate_total", alice); got != 1 {
		t.Errorf("inbound_tcp_authz_terminate_total = %v, want 1", got)
	}
}

func TestPolicyChangeAppliesToTheNextRequest(t *testing.T) {
	at := app(t, hello)
	w := newWorld(t).redirectTo(at).run()
	friend := w.ca.Local(t, alice)
	c := client(t, true, func() (net.Conn, error) { return w.tls(friend) }) // one connection
	w.allow(at.Port(), detectServer(onlyIdentity(alice)))
	for _, step := range []struct {
		id   string
		want int
	}{{alice, 200}, {mallet, 403}, {alice, 200}} {
		w.allow(at.Port(), detectServer(onlyIdentity(step.id)))
		if res, _ := get(t, c, "http://web/"); res.StatusCode != step.want {
			t.Errorf("%s allowed: %d, want %d", step.id, res.StatusCode, step.want)
		}
	}
	broken := detectServer()
	broken.Protocol = nil
	w.allow(at.Port(), broken)
	if res, _ := get(t, c, "http://web/"); res.StatusCode != 500 || res.Header.Get("l5d-proxy-error") != "invalid server configuration" {
		t.Errorf("a broken policy: %d %v", res.StatusCode, res.Header)
	}
}

// bidi echoes each piece at once and ends with trailers, as a gRPC stream does.
var bidi = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/grpc")
	w.Header().Set("Trailer", "Grpc-Status")
	w.WriteHeader(200)
	rc := http.NewResponseController(w)
	_ = rc.Flush()
	buf := make([]byte, 100)
	for {
		n, err := r.Body.Read(buf)
		_, _ = w.Write(buf[:n])
		_ = rc.Flush()
		if err != nil {
			break
		}
	}
	w.Header().Set("Grpc-Status", "13")
	w.Header().Set(http.TrailerPrefix+"X-Late", r.Proto)
})

func TestStreamsAndTrailers(t *testing.T) {
	at := app(t, bidi)
	w := newWorld(t, open).redirectTo(at).run()
	friend := w.ca.Local(t, alice)
	c := client(t, true, func() (net.Conn, error) { return w.tls(friend) })
	pr, pw := io.Pipe()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://web/svc/Stream", pr)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/grpc")
	req.Header.Set("TE", "trailers")
	res, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	buf := make([]byte, 100)
	for i := range 3 { // each answer comes before the next question
		piece := fmt.Sprintf("piece %d", i)
		if _, err := io.WriteString(pw, piece); err != nil {
			t.Fatal(err)
		}
		if n, err := io.ReadFull(res.Body, buf[:len(piece)]); err != nil || string(buf[:n]) != piece {
			t.Fatalf("read %q, %v", buf[:n], err)
		}
	}
	_ = pw.Close()
	if _, err := io.ReadAll(res.Body); err != nil {
		t.Fatal(err)
	}
	if res.Trailer.Get("Grpc-Status") != "13" || res.Trailer.Get("X-Late") != "HTTP/2.0" {
		t.Errorf("trailers %v", res.Trailer)
	}
	eventually(t, "a failure by its trailer", func() bool {
		return w.meter("response_total", `"failure"`, `grpc_status`, `"13"`) == 1
	})
}

func TestOrigProto(t *testing.T) {
	at := app(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = fmt.Fprint(w, r.Proto, " ", r.RequestURI, " ", r.Host, " ", r.Header.Get("l5d-orig-proto"))
	}))
	w := newWorld(t, open).redirectTo(at).run()
	friend := w.ca.Local(t, alice)
	c := client(t, true, func() (net.Conn, error) { return w.tls(friend) })
	for value, want := range map[string]string{
		"HTTP/1.1":                "HTTP/1.1 /x?y web ",
		"HTTP/1.1; absolute-form": "HTTP/1.1 http://web/x?y web ",
		"HTTP/1.0":                "HTTP/1.0 /x?y  ", // without a field, the client has named none
		"HTTP/1.0; absolute-form": "HTTP/1.0 http://web/x?y web ",
		"gibberish":               "HTTP/2.0 /x?y web ",
	} {
		res, body := get(t, c, "http://web/x?y", "l5d-orig-proto", value)
		if body != want || strings.HasPrefix(body, "HTTP/1") && !strings.HasPrefix(res.Header.Get("l5d-orig-proto"), "HTTP/1.") {
			t.Errorf("%s: %q, %v; want %q", value, body, res.Header, want)
		}
	}
}

func TestUpgrade(t *testing.T) {
	at := tcpApp(t, func(c *net.TCPConn) {
		br := bufio.NewReader(c)
		req, err := http.ReadRequest(br)
		if err != nil || req.Header.Get("Upgrade") != "weft" || req.Header.Get("l5d-client-id") != "" {
			return
		}
		_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: weft\r\n\r\nfirst ")
		_, _ = io.Copy(c, br)
	})
	w := newWorld(t, open).redirectTo(at).run()
	c := w.dialPlain()
	_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: web\r\nConnection: upgrade\r\nUpgrade: weft\r\nL5d-Client-Id: me\r\n\r\nearly ")
	br := bufio.NewReader(c)
	res, err := http.ReadResponse(br, nil)
	if err != nil || res.StatusCode != 101 || res.Header.Get("Upgrade") != "weft" {
		t.Fatalf("%v, %v", res, err)
	}
	_, _ = io.WriteString(c, "late")
	_ = c.(*net.TCPConn).CloseWrite()
	rest, err := io.ReadAll(br)
	if string(rest) != "first early late" || err != nil {
		t.Errorf("tunnel gave %q, %v", rest, err)
	}
}

func TestConnect(t *testing.T) {
	at := tcpApp(t, func(c *net.TCPConn) {
		br := bufio.NewReader(c)
		req, err := http.ReadRequest(br)
		if err != nil || req.Method != "CONNECT" || req.RequestURI != "db:5432" {
			return
		}
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n")
		_, _ = io.Copy(c, br)
	})
	w := newWorld(t, open).redirectTo(at).run()
	c := w.dialPlain()
	_, _ = io.WriteString(c, "CONNECT db:5432 HTTP/1.1\r\nHost: db:5432\r\n\r\n")
	br := bufio.NewReader(c)
	res, err := http.ReadResponse(br, &http.Request{Method: http.MethodConnect})
	if err != nil || res.StatusCode != 200 || res.Header.Get("Content-Length") != "" {
		t.Fatalf("%v, %v", res, err)
	}
	_, _ = io.WriteString(c, "bytes")
	_ = c.(*net.TCPConn).CloseWrite()
	if rest, err := io.ReadAll(br); string(rest) != "bytes" || err != nil {
		t.Errorf("tunnel gave %q, %v", rest, err)
	}
}

// raw asks in plain bytes and returns the answer's head and body as they came.
func (w *world) raw(request string) string {
	w.t.Helper()
	c := w.dialPlain()
	if _, err := io.WriteString(c, request); err != nil {
		w.t.Fatal(err)
	}
	b, err := io.ReadAll(c)
	if err != nil {
		w.t.Errorf("%q gave %q, %v", request, b, err)
	}
	return string(b)
}

// framed answers in ways that Go's own server would not.
func framed(c *net.TCPConn) {
	br := bufio.NewReader(c)
	for {
		req, err := http.ReadRequest(br)
		if err != nil {
			return
		}
		answer := map[string]string{
			"/head":  "HTTP/1.1 200 OK\r\nContent-Length: 55\r\n\r\n",
			"/204":   "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n",
			"/304":   "HTTP/1.1 304 Not Modified\r\nContent-Length: 7\r\n\r\n",
			"/empty": "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
			"/eof":   "HTTP/1.0 200 OK\r\n\r\nuntil the end",
		}[req.URL.Path]
		_, _ = io.WriteString(c, answer)
		if req.URL.Path == "/eof" {
			return
		}
	}
}

func TestFramingIsKept(t *testing.T) {
	at := tcpApp(t, framed)
	w := newWorld(t, open).redirectTo(at).run()
	for _, tt := range []struct{ method, path, want, not string }{
		{"HEAD", "/head", "Content-Length: 55", "Transfer-Encoding"},
		{"GET", "/204", "103 Early Hints\r\nLink: </a>", "Transfer-Encoding"},
		{"GET", "/204", "204 No Content", "Content-Type"},
		{"GET", "/304", "304 Not Modified", "Transfer-Encoding"},
		{"GET", "/empty", "Content-Length: 0", "Date"},
		{"GET", "/eof", "until the end", "Content-Type"},
	} {
		got := w.raw(tt.method + " " + tt.path + " HTTP/1.1\r\nHost: web\r\nConnection: close\r\n\r\n")
		if !strings.Contains(got, tt.want) || strings.Contains(got, tt.not) {
			t.Errorf("%s %s: %q; want %q and no %q", tt.method, tt.path, got, tt.want, tt.not)
		}
	}
}

// TestOneHostIsJudged: what the application is asked for is what the policy has
// judged, whatever else the client says of it.
func TestOneHostIsJudged(t *testing.T) {
	at := app(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = fmt.Fprint(w, r.Host) }))
	w := newWorld(t, open).redirectTo(at).run()
	friend := w.ca.Local(t, alice)
	conn, err := w.tls(friend)
	if err != nil {
		t.Fatal(err)
	}
	c := h2.Client(conn, h2.Config{})
	go func() { _ = c.Run() }()
	t.Cleanup(c.Close)
	s, err := c.Open(t.Context(), &message.Request{
		Method: "GET", Authority: "web", Target: "/",
		Fields: message.Fields{{Name: "host", Value: "other"}, {Name: "l5d-orig-proto", Value: "HTTP/1.1"}},
	}, true)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if res, err := s.Response(); err != nil || res.Status != 200 {
		t.Fatalf("%v, %v", res, err)
	}
	if p, err := s.Next(); string(p) != "web" {
		t.Errorf("the application was asked for %q, %v", p, err)
	}
}
