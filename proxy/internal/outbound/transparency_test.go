package outbound

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	outpb "github.com/linkerd/linkerd2-proxy-api/go/outbound"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// heads is a server that reads one head after another on each connection, and
// answers with what it saw and by which connection.
func heads(t *testing.T) netip.AddrPort {
	t.Helper()
	var conns atomic.Int64
	return acceptEach(t, func(c net.Conn) {
		n := conns.Add(1)
		br := bufio.NewReader(c)
		for {
			var head strings.Builder
			for {
				line, err := br.ReadString('\n')
				if err != nil {
					return
				}
				if line == "\r\n" {
					break
				}
				head.WriteString(line)
			}
			body := fmt.Sprintf("%d|%s", n, head.String())
			if _, err := fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(body), body); err != nil {
				return
			}
		}
	})
}

func sawOn(body string) (conn, head string) {
	conn, head, _ = strings.Cut(body, "|")
	return conn, head
}

func TestHTTP10StaysHTTP10(t *testing.T) {
	r := start(t)
	app := heads(t)
	for _, tt := range []struct{ request, want string }{
		{"GET /a HTTP/1.0\r\nHost: x\r\n\r\n", "GET /a HTTP/1.0\r\nHost: x\r\n"},
		{"GET /a HTTP/1.0\r\n\r\n", "GET /a HTTP/1.0\r\n"},
	} {
		conn, br := r.redirected(app)
		res, body := ask(t, conn, br, tt.request)
		if _, head := sawOn(body); res.StatusCode != 200 || head != tt.want {
			t.Errorf("%q became %q", tt.request, head)
		}
	}
}

func TestAbsoluteFormIsKept(t *testing.T) {
	r := start(t)
	app := heads(t)
	conn, br := r.redirected(app)
	_, body := ask(t, conn, br, "GET http://a.example/p?q HTTP/1.1\r\nHost: b.example\r\n\r\n")
	if _, head := sawOn(body); !strings.HasPrefix(head, "GET http://a.example/p?q HTTP/1.1\r\n") || !strings.Contains(head, "Host: b.example\r\n") {
		t.Errorf("it became %q", head)
	}
}

func TestConnectionsOfHosts(t *testing.T) {
	r := start(t)
	app := heads(t)
	on := func(request string) string {
		conn, br := r.redirected(app)
		defer func() { _ = conn.Close() }()
		_, body := ask(t, conn, br, request)
		n, _ := sawOn(body)
		return n
	}
	seen := map[string]bool{}
	// An answer is with the client a moment before its connection is free again.
	eventually(t, "a connection is used again", func() bool {
		n := on("GET / HTTP/1.1\r\nHost: x\r\n\r\n")
		again := seen[n]
		seen[n] = true
		return again
	})
	for range 3 {
		n := on("GET / HTTP/1.0\r\n\r\n")
		if seen[n] {
			t.Errorf("requests without Host share connection %s", n)
		}
		seen[n] = true
	}
}

func TestConnectAnswersLoseTheirFraming(t *testing.T) {
	r := start(t)
	at := acceptEach(t, func(c net.Conn) {
		if _, err := http.ReadRequest(bufio.NewReader(c)); err != nil {
			return
		}
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 10\r\nTransfer-Encoding: chunked\r\nX-A: b\r\n\r\nraw")
	})
	conn, br := r.redirected(at)
	_, _ = io.WriteString(conn, "CONNECT other:443 HTTP/1.1\r\nHost: other:443\r\n\r\n")
	res, err := http.ReadResponse(br, &http.Request{Method: http.MethodConnect})
	if err != nil || res.StatusCode != 200 || res.Header.Get("X-A") != "b" || res.Header.Get("Content-Length") != "" || len(res.TransferEncoding) > 0 {
		t.Fatalf("got %v, %v", res, err)
	}
	if rest, _ := io.ReadAll(br); string(rest) != "raw" {
		t.Errorf("the tunnel said %q", rest)
	}
	for _, bad := range []string{
		"CONNECT / HTTP/1.1\r\nHost: x\r\n\r\n", "CONNECT http://x/ HTTP/1.1\r\nHost: x\r\n\r\n",
		"CONNECT x:443 HTTP/1.0\r\nHost: x:443\r\n\r\n", "CONNECT x HTTP/1.1\r\nHost: x\r\n\r\n", "GET x:443 HTTP/1.1\r\nHost: x\r\n\r\n",
	} {
		conn, br := r.redirected(at)
		if res, _ := ask(t, conn, br, bad); res.StatusCode != 400 || res.ContentLength != 0 {
			t.Errorf("%q: %d", bad, res.StatusCode)
		}
	}
}

// What the client closes is closed towards the server, and the other way round.
func TestTheEndOfBytesIsPassedOn(t *testing.T) {
	r := start(t)
	lis := listenLoopback(t)
	t.Cleanup(func() { _ = lis.Close() })
	const db = "db.shop.svc.cluster.local:5432"
	r.controls.set(func() { r.controls.policies[db] = opaquePolicy(db) })
	r.controls.service(db, plain(addrPort(lis)))
	conn, _ := r.connect(db)
	server, err := lis.Accept()
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.WriteString(conn, "x")
	_ = conn.Close()
	_ = server.SetDeadline(time.Now().Add(time.Minute))
	if got, err := io.ReadAll(server); err != nil || string(got) != "x" {
		t.Errorf("the server read %q, %v", got, err)
	}
	_ = server.Close()
	eventually(t, "nothing is open", func() bool { return r.series("tcp_open_connections", nil) == 0 })
}

// A server that speaks first, inside a TLS that is its own, behind an opaque port.
func TestTLSOfTheApplicationOnAnOpaquePort(t *testing.T) {
	r := start(t)
	const db = "db.shop.svc.cluster.local:5432"
	addr := serveTLS(t, r.ca, "db.inner")
	r.controls.set(func() { r.controls.policies[db] = opaquePolicy(db) })
	r.controls.service(db, plain(addr))
	conn, br := r.connect(db)
	secure := tls.Client(buffered(conn, br), &tls.Config{ServerName: "db.inner", InsecureSkipVerify: true, MinVersion: tls.VersionTLS13})
	if got, err := io.ReadAll(secure); err != nil || string(got) != "db.inner" {
		t.Errorf("got %q, %v", got, err)
	}
}

// WebSocket frames of all sizes pass byte for byte, both ways at once, through two
// proxies.
func TestTwoProxiesCarryWebSocketFrames(t *testing.T) {
	p := startPair(t, "all-authenticated")
	var upgraded sync.Map
	app := serveHTTP(t, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		for name, values := range req.Header {
			upgraded.Store(name, values[0])
		}
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer func() { _ = conn.Close() }()
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n\x81\x05hello")
		_, _ = io.Copy(conn, rw)
	}))
	p.expose(web, app.addr)
	conn, br := p.connect("")
	_, _ = fmt.Fprintf(conn, "GET http://web.shop.svc.cluster.local/ws HTTP/1.1\r\nHost: x\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n\x81\x85\x01\x02\x03\x04early")
	res, err := http.ReadResponse(br, nil)
	if err != nil || res.StatusCode != 101 || res.Header.Get("Sec-Websocket-Accept") != "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=" || !strings.EqualFold(res.Header.Get("Upgrade"), "websocket") {
		t.Fatalf("got %v, %v", res, err)
	}
	if v, _ := upgraded.Load("Sec-Websocket-Key"); v != "dGhlIHNhbXBsZSBub25jZQ==" {
		t.Errorf("the application saw the key %v", v)
	}
	want := []byte("\x81\x05hello\x81\x85\x01\x02\x03\x04early")
	var frames bytes.Buffer
	for _, n := range []int{0, 1, 125, 126, 127, 65535, 65536, 300_000} {
		frames.Write([]byte{0x82, 0xff, 0, 0, 0, 0, byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n), 1, 2, 3, 4})
		for i := range n {
			frames.WriteByte(byte(i * 7))
		}
	}
	frames.Write([]byte{0x89, 0x80, 1, 2, 3, 4, 0x88, 0x80, 1, 2, 3, 4}) // ping, close
	want = append(want, frames.Bytes()...)
	go func() { _, _ = conn.Write(frames.Bytes()) }()
	got := make([]byte, len(want))
	if _, err := io.ReadFull(br, got); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%d bytes came back, %v; the same: %v", len(got), err, bytes.Equal(got, want))
	}
}

// h2client speaks HTTP/2 to a redirected connection, frame by frame.
func h2client(t *testing.T, conn net.Conn) (*http2.Framer, func(fields ...string)) {
	t.Helper()
	_, _ = io.WriteString(conn, http2.ClientPreface)
	fr := http2.NewFramer(conn, conn)
	fr.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	if err := fr.WriteSettings(); err != nil {
		t.Fatal(err)
	}
	return fr, func(fields ...string) {
		var block bytes.Buffer
		enc := hpack.NewEncoder(&block)
		for i := 0; i < len(fields); i += 2 {
			_ = enc.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]})
		}
		if err := fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block.Bytes(), EndHeaders: true, EndStream: true}); err != nil {
			t.Fatal(err)
		}
	}
}

func TestHTTP2WithoutAnAuthority(t *testing.T) {
	r := start(t)
	app := serveHTTP(t, echo("a"))
	conn, br := r.redirected(app.addr)
	fr, send := h2client(t, buffered(conn, br))
	send(":method", "GET", ":scheme", "http", ":path", "/x")
	for {
		f, err := fr.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		if h, ok := f.(*http2.MetaHeadersFrame); ok {
			if h.PseudoValue("status") != "200" {
				t.Errorf("got %v", h.Fields)
			}
			return
		}
	}
}

// A server's reset reaches an HTTP/2 client with its code, and an HTTP/1 client as
// a 502.
func TestResetsReachWhoCanHearThem(t *testing.T) {
	r := start(t)
	at := acceptEach(t, func(c net.Conn) {
		if _, err := io.ReadFull(c, make([]byte, len(http2.ClientPreface))); err != nil {
			return
		}
		fr := http2.NewFramer(c, c)
		_ = fr.WriteSettings()
		for {
			f, err := fr.ReadFrame()
			if err != nil {
				return
			}
			if h, ok := f.(*http2.HeadersFrame); ok {
				_ = fr.WriteRSTStream(h.StreamID, http2.ErrCodeEnhanceYourCalm)
			}
		}
	})
	r.controls.service(web, hintedH2(at))
	r.controls.set(func() {
		p := servicePolicy(web)
		r.controls.policies["127.0.0.9:80"] = p
	})
	to := netip.MustParseAddrPort("127.0.0.9:80")
	conn, br := r.redirected(to)
	fr, send := h2client(t, buffered(conn, br))
	send(":method", "GET", ":scheme", "http", ":path", "/x", ":authority", "web")
	for {
		f, err := fr.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		if rst, ok := f.(*http2.RSTStreamFrame); ok {
			if rst.ErrCode != http2.ErrCodeEnhanceYourCalm {
				t.Errorf("reset with %v", rst.ErrCode)
			}
			break
		}
	}
	conn, br = r.redirected(to)
	if res, _ := ask(t, conn, br, "POST /x HTTP/1.1\r\nHost: web\r\nContent-Length: 0\r\n\r\n"); res.StatusCode != 502 {
		t.Errorf("HTTP/1 got %d", res.StatusCode)
	}
}

// Routes that take nothing answer 404: none at all, or none without rules.
func TestNoRouteIs404(t *testing.T) {
	r := start(t)
	app := serveHTTP(t, echo("a"))
	r.controls.service(web, plain(app.addr))
	for _, routes := range [][]*outpb.HttpRoute{nil, {{Metadata: defaultMeta("none")}}} {
		b := balancerOf(web)
		r.policy(&outpb.OutboundPolicy{Metadata: serviceMeta("web"), Protocol: &outpb.ProxyProtocol{Kind: &outpb.ProxyProtocol_Detect_{Detect: &outpb.ProxyProtocol_Detect{
			Opaque: opaqueOf(b), Http1: &outpb.ProxyProtocol_Http1{Routes: routes}, Http2: &outpb.ProxyProtocol_Http2{Routes: routes},
		}}}})
		eventually(t, "there is no route over HTTP/1", func() bool { res, _ := get(t, r.client(), base+"/"); return res.StatusCode == 404 && !res.Close })
	}
	r.controls.set(func() { r.controls.policies["127.0.0.9:80"] = r.controls.policies[web] })
	conn, br := r.redirected(netip.MustParseAddrPort("127.0.0.9:80"))
	fr, send := h2client(t, buffered(conn, br))
	send(":method", "GET", ":scheme", "http", ":path", "/x", ":authority", "web")
	for {
		f, err := fr.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		if h, ok := f.(*http2.MetaHeadersFrame); ok {
			if h.PseudoValue("status") != "404" {
				t.Errorf("over HTTP/2: %v", h.Fields)
			}
			return
		}
	}
}

// A request waits until the profile has been heard of, as long as that takes.
func TestRequestsWaitForTheProfile(t *testing.T) {
	r := start(t)
	app := serveHTTP(t, echo("a"))
	r.controls.service(web, plain(app.addr))
	hold := make(chan struct{})
	r.controls.mu.Lock()
	r.controls.hold = hold
	r.controls.mu.Unlock()
	answered := make(chan int, 1)
	go func() {
		res, err := r.client().Get(base + "/")
		if err != nil {
			answered <- 0
			return
		}
		_ = res.Body.Close()
		answered <- res.StatusCode
	}()
	eventually(t, "the profile is asked for", func() bool { return r.controls.streams("profile "+web) > 0 })
	eventually(t, "the policy is there", func() bool { return r.controls.streams("policy "+web) > 0 })
	select {
	case code := <-answered:
		t.Errorf("answered %d before the profile was known", code)
	default:
	}
	close(hold)
	if code := <-answered; code != 200 {
		t.Errorf("then: %d", code)
	}
}

// TestCredentialsForProxies: a transparent proxy is not the one that a client proves
// itself to, an explicit one is.
func TestCredentialsForProxies(t *testing.T) {
	r := start(t)
	app := heads(t)
	r.controls.service(web, plain(app))
	const fields = "Host: web.shop.svc.cluster.local\r\nProxy-Authorization: Basic eA==\r\n\r\n"
	conn, br := r.redirected(app)
	if _, body := ask(t, conn, br, "GET / HTTP/1.1\r\n"+fields); !strings.Contains(body, "Proxy-Authorization: Basic eA==") {
		t.Errorf("the other proxy gets %q", body)
	}
	direct, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", r.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = direct.Close() }()
	if _, body := ask(t, direct, bufio.NewReader(direct), "GET http://"+web+"/ HTTP/1.1\r\n"+fields); !strings.Contains(body, "GET / HTTP/1.1") || strings.Contains(body, "Proxy-Auth") {
		t.Errorf("an endpoint gets %q", body)
	}
}
