package inbound

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/weftmesh/weft/proxy/internal/config"
	"github.com/weftmesh/weft/proxy/internal/fate"
	"github.com/weftmesh/weft/proxy/internal/header"
	"github.com/weftmesh/weft/proxy/internal/identity"
)

// dialPlain connects from another host, as it were.
func (w *world) dialPlain() net.Conn { return w.dialFrom("127.0.0.9") }

func (w *world) dialFrom(ip string) net.Conn {
	w.t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(ip)}}
	c, err := d.DialContext(w.t.Context(), "tcp", w.in.Addr().String())
	if err != nil {
		w.t.Fatal(err)
	}
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	w.t.Cleanup(func() { _ = c.Close() })
	return c
}

func (w *world) tls(client *identity.Local, alpn ...string) (*tls.Conn, error) {
	c := tls.Client(w.dialPlain(), client.ClientTLS(server, server, alpn...))
	return c, c.HandshakeContext(w.t.Context())
}

// client sends HTTP over connections that open makes.
func client(t *testing.T, v2 bool, open func() (net.Conn, error)) *http.Client {
	t.Helper()
	p := new(http.Protocols)
	if v2 {
		p.SetUnencryptedHTTP2(true)
	} else {
		p.SetHTTP1(true)
	}
	tr := &http.Transport{Protocols: p, DisableCompression: true, DialContext: func(context.Context, string, string) (net.Conn, error) { return open() }}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: time.Minute}
}

func get(t *testing.T, c *http.Client, url string, headers ...string) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	res, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res, string(body)
}

// hello tells what arrived.
var hello = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	_, _ = io.WriteString(w, r.Proto+" "+r.URL.Path+" from "+r.Header.Get("l5d-client-id"))
})

func TestHTTPOverMutualTLS(t *testing.T) {
	at := app(t, hello)
	w := newWorld(t).redirectTo(at).run()
	w.allow(at.Port(), detectServer(onlyIdentity(alice)))
	friend, stranger := w.ca.Local(t, alice), w.ca.Local(t, mallet)

	for _, v2 := range []bool{false, true} {
		c := client(t, v2, func() (net.Conn, error) { return w.tls(friend) })
		// A client cannot claim another identity, nor have its own hidden.
		headers := []string{"l5d-client-id", mallet}
		if !v2 {
			headers = append(headers, "connection", "l5d-client-id")
		}
		res, body := get(t, c, "http://web/x", headers...)
		want := map[bool]string{false: "HTTP/1.1", true: "HTTP/2.0"}[v2] + " /x from " + alice
		if res.StatusCode != 200 || body != want {
			t.Errorf("v2=%v: %d %q, want %q", v2, res.StatusCode, body, want)
		}
		c = client(t, v2, func() (net.Conn, error) { return w.tls(stranger) })
		res, _ = get(t, c, "http://web/x")
		if res.StatusCode != 403 || res.Header.Get("l5d-proxy-error") == "" {
			t.Errorf("v2=%v: a stranger got %d, %v", v2, res.StatusCode, res.Header)
		}
	}
	if got := w.meter("inbound_http_authz_deny_total", mallet, `"web"`, `"default"`); got != 2 {
		t.Errorf("inbound_http_authz_deny_total = %v, want 2", got)
	}
	if got := w.meter("request_total", alice, `"friends"`, `"inbound"`); got != 2 {
		t.Errorf("request_total = %v, want 2", got)
	}
}

func TestGRPCDenialIsAStatus(t *testing.T) {
	at := app(t, hello)
	w := newWorld(t).redirectTo(at).run()
	w.allow(at.Port(), detectServer(onlyIdentity(alice)))
	stranger := w.ca.Local(t, mallet)
	c := client(t, true, func() (net.Conn, error) { return w.tls(stranger) })
	res, _ := get(t, c, "http://web/svc/Method", "content-type", "application/grpc+proto")
	if res.StatusCode != 200 || res.Header.Get("grpc-status") != "7" || res.Header.Get("content-type") != "application/grpc" {
		t.Errorf("%d %v, want grpc-status 7", res.StatusCode, res.Header)
	}
}

func TestPlaintextIsRefused(t *testing.T) {
	at := app(t, hello)

	t.Run("by the default", func(t *testing.T) {
		w := newWorld(t).redirectTo(at).run() // deny
		c := w.dialPlain()
		_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nhost: web\r\n\r\n")
		if b, err := io.ReadAll(c); len(b) > 0 {
			t.Errorf("got %q, %v; want a closed connection", b, err)
		}
		if got := w.meter("inbound_tcp_authz_deny_total", `"deny"`); got != 1 {
			t.Errorf("inbound_tcp_authz_deny_total = %v, want 1", got)
		}
	})
	t.Run("by a policy", func(t *testing.T) {
		w := newWorld(t).redirectTo(at).run()
		w.allow(at.Port(), detectServer(onlyIdentity(alice)))
		for ip, want := range map[string]int{"127.0.0.9": 403, "127.0.0.1": 200} { // the workload itself is always allowed
			c := client(t, false, func() (net.Conn, error) { return w.dialFrom(ip), nil })
			res, _ := get(t, c, "http://web/")
			if res.StatusCode != want || res.Header.Get("l5d-proxy-error") != "" {
				t.Errorf("%s got %d %v, want %d and no explanation", ip, res.StatusCode, res.Header, want)
			}
		}
	})
	t.Run("mesh clients on loopback are not this host", func(t *testing.T) {
		w := newWorld(t).redirectTo(at).run()
		w.allow(at.Port(), detectServer(onlyIdentity(alice)))
		stranger := w.ca.Local(t, mallet)
		c := client(t, false, func() (net.Conn, error) {
			c := tls.Client(w.dialFrom("127.0.0.1"), stranger.ClientTLS(server, server))
			return c, c.HandshakeContext(t.Context())
		})
		if res, _ := get(t, c, "http://web/"); res.StatusCode != 403 {
			t.Errorf("got %d, want 403", res.StatusCode)
		}
	})
}

func TestUntilThePolicyIsKnownTheDefaultHolds(t *testing.T) {
	at := app(t, hello)
	for name, want := range map[string]int{"all-unauthenticated": 200, "all-authenticated": 403} {
		w := newWorld(t, func(c *config.Config) { c.Policy.Default = name }).redirectTo(at).run()
		c := client(t, false, func() (net.Conn, error) { return w.dialPlain(), nil })
		if res, _ := get(t, c, "http://web/"); res.StatusCode != want {
			t.Errorf("%s: %d, want %d", name, res.StatusCode, want)
		}
	}
}

// A port that nobody has used yet is not judged by the default if its policy
// comes at once.
func TestFirstConnectionWaitsForThePolicy(t *testing.T) {
	at := app(t, hello)
	for name, allowed := range map[string]bool{"deny": true, "all-unauthenticated": false} {
		w := newWorld(t, func(c *config.Config) { c.Policy.Default = name }).redirectTo(at)
		w.in.policies.first = 10 * time.Second
		w.run()
		id, want := alice, 200
		if !allowed {
			id, want = mallet, 403
		}
		w.policy.set(at.Port(), detectServer(onlyIdentity(id)))
		friend := w.ca.Local(t, alice)
		c := client(t, false, func() (net.Conn, error) { return w.tls(friend) })
		if res, _ := get(t, c, "http://web/"); res.StatusCode != want {
			t.Errorf("%s: %d, want %d", name, res.StatusCode, want)
		}
	}
}

// TestReadyAfterThePolicies: a pod whose policy replica lags behind is no
// endpoint before the replica has said what may come in; nor does it wait for
// ever when none says it.
func TestReadyAfterThePolicies(t *testing.T) {
	at := app(t, hello)
	known := func(c *config.Config) {
		c.Policy.Default, c.Policy.Ports = "all-unauthenticated", config.Ports{{Low: at.Port(), High: at.Port()}}
	}
	w := newWorld(t, known).redirectTo(at)
	w.in.policies.settle = time.Hour
	w.run()
	friend := w.ca.Local(t, alice)
	c := client(t, false, func() (net.Conn, error) { return w.tls(friend) })
	get(t, c, "http://web/") // so it accepts
	w.policy.set(w.in.cfg.AdminListen.Port(), detectServer(onlyIdentity(alice)))
	if w.in.Ready() {
		t.Error("ready without the policy of a known port")
	}
	w.policy.set(at.Port(), detectServer(onlyIdentity(alice)))
	eventually(t, "readiness", w.in.Ready)

	w = newWorld(t, known).redirectTo(at)
	w.in.policies.settle = time.Millisecond
	if w.in.Ready() {
		t.Error("ready before anything is accepted")
	}
	w.run()
	eventually(t, "readiness without a policy", w.in.Ready)
}

func TestDirect(t *testing.T) {
	at := app(t, hello)
	w := newWorld(t).run()
	w.allow(at.Port(), detectServer(onlyIdentity(alice)))
	friend, stranger := w.ca.Local(t, alice), w.ca.Local(t, mallet)

	for _, session := range []header.Session{header.HTTP1, header.HTTP2} {
		c := client(t, session == header.HTTP2, func() (net.Conn, error) {
			return w.direct(friend, header.Header{Port: at.Port(), Session: session}), nil
		})
		if res, body := get(t, c, "http://web/x"); res.StatusCode != 200 || !strings.HasSuffix(body, alice) {
			t.Errorf("%v: %d %q", session, res.StatusCode, body)
		}
	}
	c := client(t, false, func() (net.Conn, error) {
		return w.direct(stranger, header.Header{Port: at.Port(), Session: header.HTTP1}), nil
	})
	if res, _ := get(t, c, "http://web/x"); res.StatusCode != 403 {
		t.Errorf("a stranger got %d", res.StatusCode)
	}
	if got := w.meter("inbound_tcp_transport_header_connections_total", "http/1", alice); got != 1 {
		t.Errorf("counted %v transport headers, want 1", got)
	}
}

func TestDirectRefusals(t *testing.T) {
	at := app(t, hello)
	w := newWorld(t, func(c *config.Config) { c.Policy.Default = "all-unauthenticated" }).run()
	friend := w.ca.Local(t, alice)
	withHeader := func(h header.Header) func() (net.Conn, error) {
		return func() (net.Conn, error) { return w.direct(friend, h), nil }
	}
	tests := []struct {
		name  string
		open  func() (net.Conn, error)
		label string
	}{
		{"plaintext", func() (net.Conn, error) { return w.dialPlain(), nil }, "unexpected"},
		{"no header negotiated", func() (net.Conn, error) { return w.tls(friend) }, "unexpected"},
		{"no client certificate", func() (net.Conn, error) {
			c := tls.Client(w.dialPlain(), &tls.Config{InsecureSkipVerify: true, ServerName: server, NextProtos: []string{header.ALPN}})
			return c, c.HandshakeContext(t.Context())
		}, "unexpected"},
		{"another name", func() (net.Conn, error) {
			c := tls.Client(w.dialPlain(), friend.ClientTLS(server, mallet, header.ALPN))
			_ = c.HandshakeContext(t.Context())
			return c, nil
		}, "unexpected"},
		{"no header", func() (net.Conn, error) { return w.tls(friend, header.ALPN) }, "unexpected"},
		{"a gateway", withHeader(header.Header{Port: at.Port(), Name: "web.ns.svc.cluster.local"}), "gateway domain invalid"},
		{"the proxy itself", withHeader(header.Header{Port: w.in.Addr().Port()}), "unexpected"},
		{"the outbound proxy", withHeader(header.Header{Port: 4140}), "unexpected"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			labels := map[string]string{"error": tt.label, "target_addr": w.in.Addr().String()}
			before := w.seriesOf("inbound_tcp_errors_total", labels)
			c, err := tt.open()
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nhost: a-host-of-some-length\r\nconnection: close\r\n\r\n")
			b, _ := io.ReadAll(c)
			if len(b) > 0 {
				t.Errorf("answered %q", b)
			}
			eventually(t, "an error counted as "+tt.label, func() bool { return w.seriesOf("inbound_tcp_errors_total", labels) == before+1 })
		})
	}
}

func TestForeignTLSPassesThrough(t *testing.T) {
	ca := newWorld(t).ca // of somebody else
	cert := ca.Certificate(t, mallet, time.Now().Add(time.Hour))
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{cert}})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		_, _ = io.Copy(c, c)
	}()
	at := l.Addr().(*net.TCPAddr).AddrPort()
	w := newWorld(t, func(c *config.Config) { c.Policy.Default = "all-unauthenticated" }).redirectTo(at).run()
	c := tls.Client(w.dialPlain(), &tls.Config{InsecureSkipVerify: true, ServerName: "app.example"})
	if _, err := io.WriteString(c, "secret\n"); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(c).ReadString('\n'); line != "secret\n" {
		t.Errorf("read %q, %v", line, err)
	}
	if got := w.meter("tcp_open_total", "opaque", "app.example", `"src"`); got != 1 {
		t.Errorf("tcp_open_total = %v, want 1", got)
	}
}

func TestUnreachableApplication(t *testing.T) {
	gone := netip.MustParseAddrPort("127.0.0.1:1")
	w := newWorld(t, func(c *config.Config) { c.Policy.Default = "all-unauthenticated" }).redirectTo(gone).run()
	friend := w.ca.Local(t, alice)
	meshed := client(t, false, func() (net.Conn, error) { return w.tls(friend) })
	res, _ := get(t, meshed, "http://web/")
	if res.StatusCode != 502 || res.Header.Get("l5d-proxy-error") == "" || res.Header.Get("l5d-proxy-connection") != "close" || !res.Close {
		t.Errorf("a mesh client got %d %v", res.StatusCode, res.Header)
	}
	if got := fate.Take(res.Header); got != fate.Unsent {
		t.Errorf("a mesh client was told that its request is %q", got)
	}
	plain := client(t, false, func() (net.Conn, error) { return w.dialPlain(), nil })
	res, _ = get(t, plain, "http://web/")
	if res.StatusCode != 502 || res.Header.Get("l5d-proxy-error") != "" || fate.Take(res.Header) != "" {
		t.Errorf("a plain client got %d %v", res.StatusCode, res.Header)
	}
	grpc := client(t, true, func() (net.Conn, error) { return w.tls(friend) })
	res, _ = get(t, grpc, "http://web/a/b", "content-type", "application/grpc")
	if res.StatusCode != 200 || res.Header.Get("grpc-status") != "14" || fate.Take(res.Header) != fate.Unsent {
		t.Errorf("a gRPC client got %d %v", res.StatusCode, res.Header)
	}
}

func TestAddressesOfOthersAreRefused(t *testing.T) {
	at := app(t, hello)
	w := newWorld(t, func(c *config.Config) {
		c.Policy.Default = "all-unauthenticated"
		c.Policy.IPs = []netip.Addr{netip.MustParseAddr("10.1.2.3")}
	}).redirectTo(at).run()
	c := w.dialPlain()
	_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nhost: web\r\n\r\n")
	if b, err := io.ReadAll(c); len(b) > 0 || errors.Is(err, net.ErrClosed) {
		t.Errorf("got %q, %v", b, err)
	}
	eventually(t, "an error", func() bool {
		return w.seriesOf("inbound_tcp_errors_total", map[string]string{"error": "unexpected", "target_port": portText(at.Port())}) == 1
	})
}

func tlsClient(c net.Conn, l *identity.Local) (net.Conn, error) {
	secured := tls.Client(c, l.ClientTLS(server, server))
	return secured, secured.Handshake()
}
