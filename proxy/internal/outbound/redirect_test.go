package outbound

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	destpb "github.com/linkerd/linkerd2-proxy-api/go/destination"

	"github.com/weftmesh/weft/proxy/internal/header"
	"github.com/weftmesh/weft/proxy/internal/resolve"
)

// redirected gives the proxy a connection as the packet filter would, going to
// the address, and returns the client's end.
func (r *rig) redirected(to netip.AddrPort) (net.Conn, *bufio.Reader) {
	r.t.Helper()
	lis := listenLoopback(r.t)
	defer func() { _ = lis.Close() }()
	client, err := (&net.Dialer{}).DialContext(r.t.Context(), "tcp", lis.Addr().String())
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = client.Close() })
	_ = client.SetDeadline(time.Now().Add(time.Minute))
	accepted, err := lis.Accept()
	if err != nil {
		r.t.Fatal(err)
	}
	go r.out.stream(accepted, resolve.Target{Addr: to}, addrOf(accepted.RemoteAddr()), r.drain.Hold())
	return client, bufio.NewReader(client)
}

func ask(t *testing.T, conn net.Conn, br *bufio.Reader, request string) (*http.Response, string) {
	t.Helper()
	if _, err := io.WriteString(conn, request); err != nil {
		t.Fatal(err)
	}
	res, err := http.ReadResponse(br, nil)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res, string(body)
}

func TestRedirectedWithoutDiscoveryGoesWhereItWasGoing(t *testing.T) {
	r := start(t)
	app := serveHTTP(t, echo("a"))
	conn, br := r.redirected(app.addr)
	for _, tt := range []struct{ request, uri, host string }{
		{"GET /p?q HTTP/1.1\r\nHost: any.example\r\n\r\n", "/p?q", "any.example"},
		{"GET http://abs.example/p HTTP/1.1\r\nHost: abs.example\r\n\r\n", "http://abs.example/p", "abs.example"},
		{"OPTIONS * HTTP/1.1\r\nHost: any.example\r\n\r\n", "*", "any.example"},
		{"GET //double HTTP/1.1\r\nHost: any.example\r\n\r\n", "//double", "any.example"},
	} {
		res, body := ask(t, conn, br, tt.request)
		if tt.uri == "*" { // net/http answers that itself
			if res.StatusCode != 200 {
				t.Errorf("%q: %d", tt.request, res.StatusCode)
			}
			continue
		}
		if res.StatusCode != 200 || body != "a " || res.Header.Get("X-Uri") != tt.uri || res.Header.Get("X-Host") != tt.host {
			t.Errorf("%q: got %d %q, asked for %q of %q", tt.request, res.StatusCode, body, res.Header.Get("X-Uri"), res.Header.Get("X-Host"))
		}
	}
}

func TestRedirectedEndpointOfAProfile(t *testing.T) {
	r := start(t)
	peer := newSidecar(t, r.ca, "web.shop", echo("a"))
	pod := netip.AddrPortFrom(peer.addr.Addr(), 8080)
	r.controls.set(func() {
		r.controls.profiles[pod.String()] = &destpb.DestinationProfile{Endpoint: meshed(pod, "web.shop", peer.addr.Port())}
	})
	conn, br := r.redirected(pod)
	if res, body := ask(t, conn, br, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); res.StatusCode != 200 || body != "a " {
		t.Errorf("got %d %q", res.StatusCode, body)
	}
	if got, want := <-peer.headers, (header.Header{Port: 8080, Session: header.HTTP2}); got != want {
		t.Errorf("transport header %+v, want %+v", got, want)
	}
}

func TestForwardToADeadAddressIsToldAtOnce(t *testing.T) {
	r := start(t)
	lis := listenLoopback(t)
	dead := addrPort(lis)
	_ = lis.Close()
	// Who waited for another endpoint would do so each time; on a busy machine an
	// answer may be late.
	soonest := time.Hour
	for range 10 {
		conn, br := r.redirected(dead)
		began := time.Now()
		res, _ := ask(t, conn, br, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
		if res.StatusCode != http.StatusBadGateway || !strings.Contains(res.Header.Get("L5d-Proxy-Error"), "refused") || res.Header.Get("Connection") != "close" && !res.Close {
			t.Errorf("got %d %v", res.StatusCode, res.Header)
		}
		if soonest = min(soonest, time.Since(began)); soonest < failfast {
			return
		}
	}
	t.Errorf("it took %v", soonest)
}

func TestConnectMeantForAnotherProxy(t *testing.T) {
	r := start(t)
	other := acceptEach(t, func(c net.Conn) {
		br := bufio.NewReader(c)
		req, err := http.ReadRequest(br)
		if err != nil {
			return
		}
		if req.Host != "far.example:443" {
			_, _ = io.WriteString(c, "HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno")
			return
		}
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX-Other: 1\r\n\r\n")
		line, _ := br.ReadString('\n')
		_, _ = fmt.Fprintf(c, "got %s", line)
	})
	conn, br := r.redirected(other)
	_, _ = fmt.Fprint(conn, "CONNECT far.example:443 HTTP/1.1\r\nHost: far.example:443\r\n\r\n")
	res, err := http.ReadResponse(br, &http.Request{Method: http.MethodConnect})
	if err != nil || res.StatusCode != 200 || res.Header.Get("X-Other") != "1" || res.Header.Get("Content-Length") != "" {
		t.Fatalf("got %v, %v", res, err)
	}
	_, _ = fmt.Fprint(conn, "hello\n")
	if line, err := br.ReadString('\n'); err != nil || line != "got hello\n" {
		t.Errorf("got %q, %v", line, err)
	}
	conn, br = r.redirected(other)
	if res, body := ask(t, conn, br, "CONNECT near.example:443 HTTP/1.1\r\nHost: near.example:443\r\n\r\n"); res.StatusCode != 403 || body != "no" {
		t.Errorf("a refusal became %d %q", res.StatusCode, body)
	}
	conn, br = r.redirected(other)
	if res, _ := ask(t, conn, br, "CONNECT http://x/ HTTP/1.1\r\nHost: x\r\n\r\n"); res.StatusCode != 400 {
		t.Errorf("a malformed CONNECT got %d", res.StatusCode)
	}
}

func TestHTTP1Framing(t *testing.T) {
	r := start(t)
	app := serveHTTP(t, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		switch req.URL.Path {
		case "/head":
			w.Header().Set("Content-Length", "42")
		case "/304":
			w.WriteHeader(304)
		case "/early":
			w.Header().Set("Link", "</x>")
			w.WriteHeader(103)
			w.Header().Del("Link")
			w.WriteHeader(204)
		case "/length":
			w.Header().Set("X-Length", fmt.Sprint(req.ContentLength, req.TransferEncoding))
			w.WriteHeader(200)
		}
	}))
	conn, br := r.redirected(app.addr)
	if _, err := io.WriteString(conn, "HEAD /head HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	res, err := http.ReadResponse(br, &http.Request{Method: http.MethodHead})
	if err != nil || res.Header.Get("Content-Length") != "42" {
		t.Errorf("HEAD: %v, %v", res, err)
	}
	if res, _ := ask(t, conn, br, "GET /304 HTTP/1.1\r\nHost: x\r\n\r\n"); res.StatusCode != 304 || res.Header.Get("Transfer-Encoding") != "" {
		t.Errorf("304: %v", res.Header)
	}
	if res, _ := ask(t, conn, br, "GET /early HTTP/1.1\r\nHost: x\r\n\r\n"); res.StatusCode != 103 || res.Header.Get("Link") != "</x>" {
		t.Errorf("early hints: %d %v", res.StatusCode, res.Header)
	}
	if res, err := http.ReadResponse(br, nil); err != nil || res.StatusCode != 204 || res.Header.Get("Link") != "" || res.Header.Get("Content-Length") != "" {
		t.Errorf("after early hints: %v %v", res, err)
	}
	for _, tt := range []struct{ request, want string }{
		{"POST /length HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n", "0 []"},
		{"POST /length HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc", "3 []"},
		{"POST /length HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n", "-1 [chunked]"},
		{"GET /length HTTP/1.1\r\nHost: x\r\n\r\n", "0 []"},
	} {
		if res, _ := ask(t, conn, br, tt.request); res.Header.Get("X-Length") != tt.want {
			t.Errorf("%q: the application saw %q, want %q", tt.request, res.Header.Get("X-Length"), tt.want)
		}
	}
	if res, _ := ask(t, conn, br, "GET /upgrade HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AA\r\n\r\n"); res.StatusCode != 200 || res.Header.Get("Upgrade") != "" {
		t.Errorf("h2c: %d %v", res.StatusCode, res.Header)
	}
}

// A body that the client spoils is the client's doing: it is not sent again, and
// says nothing about the endpoint.
func TestSpoiltBodyIsSentOnce(t *testing.T) {
	r := start(t)
	for _, request := range []string{
		"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nhello\r\n0\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5 \r\nhelloXX0\r\n\r\n",
	} {
		var asked atomic.Int64
		app := serveHTTP(t, http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
			asked.Add(1)
			_, _ = io.Copy(io.Discard, req.Body)
		}))
		conn, br := r.redirected(app.addr)
		if res, _ := ask(t, conn, br, request); res.StatusCode != 400 || asked.Load() > 1 {
			t.Errorf("%q: %d, asked %d times", request, res.StatusCode, asked.Load())
		}
	}
}

// What is left of a body that nobody wanted does not spoil the next request.
func TestUnreadBodyLeavesTheConnectionUsable(t *testing.T) {
	r := start(t)
	app := serveHTTP(t, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		_, _ = io.WriteString(w, req.URL.Path)
	}))
	conn, br := r.redirected(app.addr)
	for range 50 {
		for _, request := range []string{
			"POST /chunked HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
			"POST /length HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello",
		} {
			if res, body := ask(t, conn, br, request); res.StatusCode != 200 || !strings.Contains(request, body) {
				t.Fatalf("got %d %q", res.StatusCode, body)
			}
		}
	}
}

// An answer that comes before the request has been sent whole is passed on, and
// the connection then ends: what was still to come cannot be told from a request.
func TestEarlyAnswer(t *testing.T) {
	r := start(t)
	app := serveHTTP(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Connection", "close")
		w.WriteHeader(http.StatusRequestEntityTooLarge)
		_, _ = io.WriteString(w, "too much")
	}))
	for range 20 {
		conn, br := r.redirected(app.addr)
		res, body := ask(t, conn, br, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\nonly a little")
		if res.StatusCode != 413 || body != "too much" {
			t.Fatalf("got %d %q", res.StatusCode, body)
		}
		if rest, err := io.ReadAll(br); err != nil || len(rest) > 0 {
			t.Fatalf("after it: %q, %v", rest, err)
		}
	}
}
