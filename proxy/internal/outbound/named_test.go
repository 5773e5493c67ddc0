package outbound

import (
	"crypto/tls"
	"io"
	"net/netip"
	"testing"

	outpb "github.com/linkerd/linkerd2-proxy-api/go/outbound"
	tlspb "github.com/linkerd/linkerd2-proxy-api/go/tls_route"
)

// serveTLS answers each TLS connection with a name, whatever it asked for.
func serveTLS(t *testing.T, ca *authorityCA, name string) netip.AddrPort {
	t.Helper()
	lis := tls.NewListener(listenLoopback(t), &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{ca.issue(t, name)}})
	t.Cleanup(func() { _ = lis.Close() })
	go func() {
		for {
			c, err := lis.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = io.WriteString(c, name)
				_ = c.Close()
			}()
		}
	}()
	return netip.MustParseAddrPort(lis.Addr().String())
}

func tlsRoute(name, to string, filter *outpb.TlsRoute_Filter, snis ...*tlspb.SniMatch) *outpb.TlsRoute {
	rule := &outpb.TlsRoute_Rule{Backends: &outpb.TlsRoute_Distribution{Kind: &outpb.TlsRoute_Distribution_FirstAvailable_{
		FirstAvailable: &outpb.TlsRoute_Distribution_FirstAvailable{Backends: []*outpb.TlsRoute_RouteBackend{{Backend: balancerOf(to)}}},
	}}}
	if filter != nil {
		rule.Filters = []*outpb.TlsRoute_Filter{filter}
	}
	return &outpb.TlsRoute{Metadata: serviceMeta(name), Snis: snis, Rules: []*outpb.TlsRoute_Rule{rule}}
}

func exactly(name string) *tlspb.SniMatch {
	return &tlspb.SniMatch{Match: &tlspb.SniMatch_Exact{Exact: name}}
}

func below(labels ...string) *tlspb.SniMatch {
	return &tlspb.SniMatch{Match: &tlspb.SniMatch_Suffix_{Suffix: &tlspb.SniMatch_Suffix{ReverseLabels: labels}}}
}

// TLS that leaves the cluster goes where the name in its handshake leads, and is
// not opened on the way.
func TestTLSIsRoutedByName(t *testing.T) {
	r := start(t)
	const a, b, c = "a.shop.svc.cluster.local:443", "b.shop.svc.cluster.local:443", "c.shop.svc.cluster.local:443"
	for name, authority := range map[string]string{"a": a, "b": b, "c": c} {
		r.controls.service(authority, plain(serveTLS(t, r.ca, name)))
	}
	to := netip.MustParseAddrPort("127.0.0.9:443")
	r.controls.set(func() {
		r.controls.policies[to.String()] = &outpb.OutboundPolicy{Metadata: serviceMeta("egress"), Protocol: &outpb.ProxyProtocol{Kind: &outpb.ProxyProtocol_Tls_{Tls: &outpb.ProxyProtocol_Tls{
			Routes: []*outpb.TlsRoute{
				tlsRoute("wide", a, nil, below("com", "example")),
				tlsRoute("narrow", b, nil, below("com", "example", "api")),
				tlsRoute("exact", c, nil, exactly("www.example.com")),
				tlsRoute("closed", c, &outpb.TlsRoute_Filter{Kind: &outpb.TlsRoute_Filter_Forbidden{}}, exactly("secret.example.com")),
				tlsRoute("lost", c, &outpb.TlsRoute_Filter{Kind: &outpb.TlsRoute_Filter_Invalid{}}, exactly("lost.example.com")),
			},
		}}}}
	})
	ask := func(sni string) (string, error) {
		conn, _ := r.redirected(to)
		secure := tls.Client(conn, &tls.Config{ServerName: sni, InsecureSkipVerify: true, MinVersion: tls.VersionTLS13})
		if err := secure.Handshake(); err != nil {
			return "", err
		}
		got, err := io.ReadAll(secure)
		return string(got), err
	}
	for sni, want := range map[string]string{"x.example.com": "a", "v1.api.example.com": "b", "api.example.com": "a", "www.example.com": "c"} {
		if got, err := ask(sni); err != nil || got != want {
			t.Errorf("%s: %q, %v; want %s", sni, got, err, want)
		}
	}
	for _, sni := range []string{"secret.example.com", "lost.example.com", "example.org", "example.com"} {
		if got, err := ask(sni); err == nil {
			t.Errorf("%s: got %q, want a closed connection", sni, got)
		}
	}
	if got := r.series("outbound_tls_route_close_total", map[string]string{"error": "forbidden", "route_name": "closed"}); got != 1 {
		t.Errorf("%v connections were counted as forbidden", got)
	}
	if got := r.series("outbound_tls_route_close_total", map[string]string{"error": "invalid_backend", "route_name": "lost"}); got != 1 {
		t.Errorf("%v connections were counted as having no backend", got)
	}
	// What is no TLS, or names nobody, is closed too.
	for _, first := range []string{"GET / HTTP/1.1\r\nHost: www.example.com\r\n\r\n", "\x00\x01\x02"} {
		conn, br := r.redirected(to)
		_, _ = io.WriteString(conn, first)
		if n, err := br.Read(make([]byte, 1)); n != 0 || err == nil {
			t.Errorf("%q was answered", first)
		}
	}
	conn, _ := r.redirected(to)
	secure := tls.Client(conn, &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS13})
	if err := secure.Handshake(); err == nil {
		t.Error("a handshake without a name went through")
	}
}
