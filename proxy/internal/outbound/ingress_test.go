package outbound

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"net/netip"
	"testing"
	"time"

	destpb "github.com/linkerd/linkerd2-proxy-api/go/destination"

	"github.com/weftmesh/weft/proxy/internal/config"
)

func ingress(c *config.Config) { c.Ingress, c.HideInformational = true, true }

// Each request says where it goes, in HTTP/1 and HTTP/2: to a service, also on
// another port, or to the one endpoint that a profile has for a name. A name that is
// none is an error, which is told without words of a mesh.
func TestIngressRequestsOneByOne(t *testing.T) {
	r := start(t, ingress)
	const other, single = "other.shop.svc.cluster.local:8080", "single.shop.svc.cluster.local:80"
	names := map[string]string{web: "web", other: "other"}
	for authority, name := range names {
		r.controls.service(authority, plain(serveHTTP(t, echo(name)).addr))
	}
	r.controls.set(func() {
		r.controls.profiles[single] = &destpb.DestinationProfile{FullyQualifiedName: "single.shop.svc.cluster.local", Endpoint: plain(serveHTTP(t, echo("single")).addr)}
	})
	last := serveHTTP(t, echo("the original destination"))
	conn, br := r.redirected(last.addr)
	for _, tt := range []struct {
		override, from string
		status         int
	}{
		{"web.shop.svc.cluster.local", "web", 200},
		{other, "other", 200},
		{single, "single", 200},
		{"", "the original destination", 200},
		{web, "web", 200},
		{"no name:at all", "", 400},
	} {
		field := ""
		if tt.override != "" {
			field = "L5d-Dst-Override: " + tt.override + "\r\n"
		}
		res, _ := ask(t, conn, br, "GET / HTTP/1.1\r\nHost: shop.example\r\n"+field+"\r\n")
		if res.StatusCode != tt.status || res.Header.Get("X-From") != tt.from || tt.from != "" && res.Header.Get("X-Host") != "shop.example" || res.Header.Get("L5d-Proxy-Error") != "" {
			t.Errorf("%q: %d %v", tt.override, res.StatusCode, res.Header)
		}
	}
	p := new(http.Protocols)
	p.SetUnencryptedHTTP2(true)
	tr := &http.Transport{Protocols: p, DialContext: func(context.Context, string, string) (net.Conn, error) {
		c, in := r.redirected(last.addr)
		return buffered(c, in), nil
	}}
	t.Cleanup(tr.CloseIdleConnections)
	for override, want := range map[string]string{web: "web", other: "other", "": "the original destination"} {
		req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://shop.example/", nil)
		if override != "" {
			req.Header.Set("L5d-Dst-Override", override)
		}
		res, _ := do(t, &http.Client{Transport: tr}, req)
		if res.StatusCode != 200 || res.ProtoMajor != 2 || res.Header.Get("X-From") != want {
			t.Errorf("HTTP/2, %q: %d %v", override, res.StatusCode, res.Header)
		}
	}
}

// Where a request says nothing discovery is asked about its original destination: if
// nobody knows that, no identity was provided; if it is known, its peer proves one.
func TestIngressWithoutOverrideAsksDiscovery(t *testing.T) {
	r := start(t, ingress)
	unknown := serveHTTP(t, echo("unknown"))
	conn, br := r.redirected(unknown.addr)
	if res, _ := ask(t, conn, br, "GET / HTTP/1.1\r\nHost: shop.example\r\n\r\n"); res.StatusCode != 200 {
		t.Errorf("the unknown answers %d", res.StatusCode)
	}
	if got := r.series("request_total", map[string]string{"tls": "no_identity", "no_tls_reason": "not_provided_by_service_discovery"}); got != 1 {
		t.Errorf("%v requests without TLS were counted for that reason", got)
	}
	peer := newSidecar(t, r.ca, "web.shop", echo("peer"))
	known := netip.MustParseAddrPort("127.0.0.9:80")
	r.controls.set(func() {
		r.controls.profiles[known.String()] = &destpb.DestinationProfile{Endpoint: meshed(netip.AddrPortFrom(peer.addr.Addr(), 80), "web.shop", peer.addr.Port())}
	})
	conn, br = r.redirected(known)
	if res, _ := ask(t, conn, br, "GET / HTTP/1.1\r\nHost: shop.example\r\n\r\n"); res.StatusCode != 200 {
		t.Errorf("the known answers %d", res.StatusCode)
	}
	if got := r.series("request_total", map[string]string{"tls": "true", "server_id": "web.shop"}); got != 1 {
		t.Errorf("%v requests were counted over TLS", got)
	}
}

// What is not HTTP goes to the original destination, and where that is known to be
// opaque nothing is waited for: its server may speak first (complaint E1).
func TestIngressBytes(t *testing.T) {
	r := start(t, ingress, func(c *config.Config) { c.Outbound.DetectTimeout = time.Hour })
	at := acceptEach(t, func(c net.Conn) {
		_, _ = io.WriteString(c, "220 hi\n")
		_, _ = io.Copy(c, c)
	})
	conn, br := r.redirected(at)
	_, _ = io.WriteString(conn, "these are no requests\n")
	wantLines(t, br, "220 hi\n", "these are no requests\n")
	marked := netip.MustParseAddrPort("127.0.0.9:25")
	const mail = "mail.shop.svc.cluster.local:25"
	r.controls.service(mail, plain(at))
	r.controls.set(func() { r.controls.policies[marked.String()] = opaquePolicy(mail) })
	_, br = r.redirected(marked)
	wantLines(t, br, "220 hi\n")
}

func wantLines(t *testing.T, br *bufio.Reader, lines ...string) {
	t.Helper()
	for _, want := range lines {
		if line, err := br.ReadString('\n'); err != nil || line != want {
			t.Errorf("got %q, %v, want %q", line, err, want)
		}
	}
}
