package outbound

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weftmesh/weft/proxy/internal/header"
)

const web = "web.shop.svc.cluster.local:80"

func get(t *testing.T, c *http.Client, url string) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	return do(t, c, req)
}

func do(t *testing.T, c *http.Client, req *http.Request) (*http.Response, string) {
	t.Helper()
	res, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res, string(body)
}

func TestAbsoluteFormReachesAPlainEndpoint(t *testing.T) {
	r := start(t)
	app := serveHTTP(t, echo("a"))
	r.controls.service(web, plain(app.addr))
	res, body := get(t, r.client(), "http://web.shop.svc.cluster.local/a%2Fb?q=1")
	if res.StatusCode != 200 || body != "a " {
		t.Errorf("got %d %q", res.StatusCode, body)
	}
	if got := res.Header.Get("X-Uri"); got != "/a%2Fb?q=1" {
		t.Errorf("the application was asked for %q", got)
	}
	if got := res.Header.Get("X-Host"); got != "web.shop.svc.cluster.local" {
		t.Errorf("Host = %q", got)
	}
	want := map[string]string{"direction": "outbound", "authority": "web.shop.svc.cluster.local", "dst_service": "web", "target_addr": app.addr.String(), "tls": "no_identity"}
	if got := r.series("request_total", want); got != 1 {
		t.Errorf("request_total%v = %v", want, got)
	}
	want["classification"], want["status_code"] = "success", "200"
	eventually(t, "the response is counted", func() bool { return r.series("response_total", want) == 1 })
}

func TestHTTP1IsCarriedOverHTTP2WithMutualTLS(t *testing.T) {
	r := start(t)
	peer := newSidecar(t, r.ca, "web.shop", echo("a"))
	r.controls.service(web, meshed(netip.AddrPortFrom(peer.addr.Addr(), 8080), "web.shop", peer.addr.Port()))
	for range 5 {
		res, body := get(t, r.client(), "http://web.shop.svc.cluster.local/")
		if res.StatusCode != 200 || body != "a " || res.Header.Get("X-Proto") != "HTTP/1.1" || res.Proto != "HTTP/1.1" {
			t.Fatalf("got %d %q %s", res.StatusCode, body, res.Header.Get("X-Proto"))
		}
		if got := res.Header.Get("L5d-Orig-Proto"); got != "" {
			t.Errorf("l5d-orig-proto leaked: %q", got)
		}
	}
	if got := peer.conns.Load(); got != 1 {
		t.Errorf("%d connections, want one that is shared", got)
	}
	if got, want := <-peer.headers, (header.Header{Port: 8080, Session: header.HTTP2}); got != want {
		t.Errorf("transport header %+v, want %+v", got, want)
	}
	if got := <-peer.clients; got != "client.shop" {
		t.Errorf("client identity %q", got)
	}
	eventually(t, "responses are counted", func() bool {
		return r.series("response_total", map[string]string{"tls": "true", "server_id": "web.shop", "classification": "success"}) == 5
	})
	if got := r.series("tcp_open_connections", map[string]string{"peer": "dst", "tls": "true"}); got != 1 {
		t.Errorf("tcp_open_connections = %v", got)
	}
}

func TestWrongPeerIdentityLeaksNothing(t *testing.T) {
	r := start(t)
	peer := newSidecar(t, r.ca, "mallory.shop", echo("evil"))
	r.controls.service(web, meshed(netip.AddrPortFrom(peer.addr.Addr(), 8080), "web.shop", peer.addr.Port()))
	req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://web.shop.svc.cluster.local/", strings.NewReader("secret"))
	res, _ := do(t, r.client(), req)
	if res.StatusCode != http.StatusBadGateway || !strings.Contains(res.Header.Get("L5d-Proxy-Error"), "does not match") {
		t.Errorf("got %d %q", res.StatusCode, res.Header.Get("L5d-Proxy-Error"))
	}
	if got := peer.bytes.Load(); got != 0 {
		t.Errorf("%d bytes or requests reached a peer that is not who it should be", got)
	}
	if len(peer.headers) != 0 {
		t.Error("a transport header reached it")
	}
}

func TestPlaintextPeerIsNotSpokenToWhenIdentityIsKnown(t *testing.T) {
	r := start(t)
	var asked atomic.Int64
	app := serveHTTP(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	r.controls.service(web, meshed(app.addr, "web.shop", 0))
	res, _ := get(t, r.client(), "http://web.shop.svc.cluster.local/")
	if res.StatusCode < 500 || asked.Load() != 0 {
		t.Errorf("status %d, %d requests in plaintext", res.StatusCode, asked.Load())
	}
}

func TestOriginFormIsRefusedWithReason(t *testing.T) {
	r := start(t)
	res, err := http.Get("http://" + r.addr + "/")
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	if res.StatusCode != 400 || !strings.Contains(res.Header.Get("L5d-Proxy-Error"), "HTTP_PROXY") {
		t.Errorf("got %d %q", res.StatusCode, res.Header.Get("L5d-Proxy-Error"))
	}
}

func TestUnknownNameIsAnsweredAndAskedAgain(t *testing.T) {
	r := start(t)
	res, _ := get(t, r.client(), "http://nobody.example/")
	if res.StatusCode != http.StatusBadGateway || res.Header.Get("L5d-Proxy-Error") == "" || res.Header.Get("L5d-Proxy-Connection") != "close" {
		t.Errorf("got %d %v", res.StatusCode, res.Header)
	}
	app := serveHTTP(t, echo("late"))
	r.controls.service("nobody.example:80", plain(app.addr))
	eventually(t, "the name is known", func() bool {
		res, _ := get(t, r.client(), "http://nobody.example/")
		return res.StatusCode == 200
	})
}

func TestNoEndpointsFailsFast(t *testing.T) {
	r := start(t)
	r.controls.service(web)
	res, _ := get(t, r.client(), "http://web.shop.svc.cluster.local/")
	if res.StatusCode != http.StatusGatewayTimeout {
		t.Errorf("got %d %q", res.StatusCode, res.Header.Get("L5d-Proxy-Error"))
	}
	if got := r.series("outbound_http_errors_total", map[string]string{"error": "failfast"}); got != 1 {
		t.Errorf("outbound_http_errors_total = %v", got)
	}
	// Requests that waited would do so each time; on a busy machine one may be late.
	soonest := time.Hour
	for range 10 {
		began := time.Now()
		if res, _ := get(t, r.client(), "http://web.shop.svc.cluster.local/"); res.StatusCode != http.StatusGatewayTimeout {
			t.Errorf("got %d", res.StatusCode)
		}
		if soonest = min(soonest, time.Since(began)); soonest < failfast {
			break
		}
	}
	if soonest >= failfast {
		t.Errorf("requests after the first waited %v", soonest)
	}
	// An endpoint that comes ends the failing.
	app := serveHTTP(t, echo("a"))
	r.controls.service(web, plain(app.addr))
	eventually(t, "requests are served", func() bool {
		res, _ := get(t, r.client(), "http://web.shop.svc.cluster.local/")
		return res.StatusCode == 200
	})
}

func TestStreamingIsNotBuffered(t *testing.T) {
	r := start(t)
	next := make(chan struct{})
	app := serveHTTP(t, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		_ = http.NewResponseController(w).EnableFullDuplex()
		buf := make([]byte, 5)
		for range 3 {
			if _, err := io.ReadFull(req.Body, buf); err != nil {
				return
			}
			_, _ = w.Write(buf)
			_ = http.NewResponseController(w).Flush()
		}
		<-next
		w.Header().Set(http.TrailerPrefix+"X-Sum", "3")
	}))
	r.controls.service(web, plain(app.addr))
	pr, pw := io.Pipe()
	req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://web.shop.svc.cluster.local/", pr)
	answered := make(chan *http.Response, 1)
	go func() {
		res, err := r.client().Do(req)
		if err == nil {
			answered <- res
		}
	}()
	_, _ = io.WriteString(pw, "one  ")
	res := <-answered
	buf := make([]byte, 5)
	for _, word := range []string{"one  ", "two  ", "three"} {
		if word != "one  " {
			_, _ = io.WriteString(pw, word)
		}
		if _, err := io.ReadFull(res.Body, buf); err != nil || string(buf) != word {
			t.Fatalf("got %q, %v; want %q", buf, err, word)
		}
	}
	close(next)
	_ = pw.Close()
	if rest, err := io.ReadAll(res.Body); err != nil || len(rest) > 0 {
		t.Errorf("rest %q, %v", rest, err)
	}
	if got := res.Trailer.Get("X-Sum"); got != "3" {
		t.Errorf("trailer = %q, trailers %v", got, res.Trailer)
	}
	_ = res.Body.Close()
}

func TestHopByHopHeadersStay(t *testing.T) {
	r := start(t)
	seen := make(chan http.Header, 1)
	app := serveHTTP(t, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		seen <- req.Header.Clone()
		w.Header().Set("Connection", "X-Hop")
		w.Header().Set("X-Hop", "1")
		w.Header().Set("L5d-Proxy-Error", "forged")
		w.Header().Set("Keep-Alive", "timeout=5")
		w.WriteHeader(204)
	}))
	r.controls.service(web, plain(app.addr))
	req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://web.shop.svc.cluster.local/", nil)
	req.Header = http.Header{"Connection": {"X-Mine, keep-alive"}, "X-Mine": {"1"}, "Proxy-Connection": {"keep-alive"}, "X-Stays": {"1"}, "L5d-Require-Id": nil}
	res, _ := do(t, r.client(), req)
	for _, name := range []string{"X-Hop", "Keep-Alive", "L5d-Proxy-Error"} {
		if v := res.Header.Get(name); v != "" {
			t.Errorf("the client got %s: %s", name, v)
		}
	}
	if res.StatusCode != 204 || res.Header.Get("Transfer-Encoding") != "" || res.Header.Get("Content-Length") != "" {
		t.Errorf("a bodyless response gained framing: %d %v", res.StatusCode, res.Header)
	}
	got := <-seen
	for _, name := range []string{"X-Mine", "Proxy-Connection", "Keep-Alive"} {
		if v := got.Get(name); v != "" {
			t.Errorf("the application got %s: %s", name, v)
		}
	}
	if got.Get("X-Stays") != "1" {
		t.Error("an end-to-end header was lost")
	}
}

func TestUpgradeBecomesATunnel(t *testing.T) {
	r := start(t)
	app := serveHTTP(t, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if !strings.EqualFold(req.Header.Get("Upgrade"), "chat") {
			w.WriteHeader(400)
			return
		}
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer func() { _ = conn.Close() }()
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: chat\r\n\r\nhello\n")
		line, _ := rw.ReadString('\n')
		_, _ = io.WriteString(conn, "you said "+line)
	}))
	r.controls.service(web, hintedH2(app.addr)) // an upgrade is not carried over HTTP/2
	conn, br := r.connect("")
	_, _ = fmt.Fprintf(conn, "GET http://web.shop.svc.cluster.local/chat HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: chat\r\n\r\n")
	res, err := http.ReadResponse(br, nil)
	if err != nil || res.StatusCode != 101 || res.Header.Get("Upgrade") != "chat" {
		t.Fatalf("got %v, %v", res, err)
	}
	if line, err := br.ReadString('\n'); err != nil || line != "hello\n" {
		t.Fatalf("got %q, %v", line, err)
	}
	_, _ = fmt.Fprint(conn, "ping\n")
	if line, err := br.ReadString('\n'); err != nil || line != "you said ping\n" {
		t.Fatalf("got %q, %v", line, err)
	}
}

// connect opens a connection to the proxy and, unless the authority is empty,
// a tunnel through it.
func (r *rig) connect(authority string) (net.Conn, *bufio.Reader) {
	r.t.Helper()
	conn, err := (&net.Dialer{}).DialContext(r.t.Context(), "tcp", r.addr)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	br := bufio.NewReader(conn)
	if authority == "" {
		return conn, br
	}
	_, _ = fmt.Fprintf(conn, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", authority, authority)
	res, err := http.ReadResponse(br, &http.Request{Method: http.MethodConnect})
	if err != nil {
		r.t.Fatal(err)
	}
	if res.StatusCode != 200 {
		r.t.Fatalf("CONNECT answered %d %v", res.StatusCode, res.Header)
	}
	return conn, br
}

func TestRetriesAndTimeoutsOfARoute(t *testing.T) {
	r := start(t)
	var asked atomic.Int64
	app := serveHTTP(t, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, _ := io.ReadAll(req.Body)
		switch n := asked.Add(1); {
		case req.URL.Path == "/slow":
			<-req.Context().Done()
		case n == 1:
			w.WriteHeader(503)
		default:
			_, _ = w.Write(body)
		}
	}))
	b := balancerOf(web)
	rule := httpRule(b)
	rule.Retry = retryOn(503, 1)
	rule.Timeouts = requestTimeout(time.Second)
	r.controls.set(func() { r.controls.policies[web] = detectPolicy(b, rule, nil) })
	r.controls.service(web, plain(app.addr))
	req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://web.shop.svc.cluster.local/", strings.NewReader("body"))
	if res, body := do(t, r.client(), req); res.StatusCode != 200 || body != "body" || asked.Load() != 2 {
		t.Errorf("got %d %q after %d tries", res.StatusCode, body, asked.Load())
	}
	if res, _ := get(t, r.client(), "http://web.shop.svc.cluster.local/slow"); res.StatusCode != 504 || res.Header.Get("L5d-Proxy-Connection") != "" {
		t.Errorf("a slow request got %d %v", res.StatusCode, res.Header)
	}
}

func TestDrainClosesIdleAndFinishesActive(t *testing.T) {
	r := start(t)
	entered, leave := make(chan struct{}), make(chan struct{})
	app := serveHTTP(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		close(entered)
		<-leave
		_, _ = io.WriteString(w, "done")
	}))
	r.controls.service(web, plain(app.addr))
	answer := make(chan error, 1)
	go func() {
		res, err := r.client().Get("http://web.shop.svc.cluster.local/")
		if err == nil {
			var body []byte
			body, err = io.ReadAll(res.Body)
			_ = res.Body.Close()
			if string(body) != "done" {
				err = errors.Join(err, fmt.Errorf("got %q", body))
			}
		}
		answer <- err
	}()
	<-entered
	r.drain.Begin()
	eventually(t, "nothing is accepted", func() bool {
		c, err := net.Dial("tcp", r.addr)
		if err == nil {
			_ = c.Close()
		}
		return err != nil
	})
	close(leave)
	if err := <-answer; err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := r.drain.Wait(ctx); err != nil {
		t.Errorf("Wait() = %v with %d open", err, r.drain.Open())
	}
}
