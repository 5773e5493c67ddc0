package outbound

import (
	"net"
	"testing"

	outpb "github.com/linkerd/linkerd2-proxy-api/go/outbound"

	"github.com/weftmesh/weft/proxy/internal/rawtest"
)

// TestRawRequests sends bytes that no honest client would, in explicit mode
// (where the client names a URI) and redirected.
func TestRawRequests(t *testing.T) {
	var absolute []rawtest.Case
	for _, c := range rawtest.Load(t) {
		absolute = append(absolute, rawtest.Absolute(c, "a.test"))
	}
	t.Run("explicit", func(t *testing.T) {
		t.Parallel()
		b, r := rawtest.Serve(t), start(t)
		r.controls.service("a.test:80", plain(b.Addr.AddrPort()))
		rawtest.Run(t, b, absolute, func() (net.Conn, error) { return (&net.Dialer{}).DialContext(t.Context(), "tcp", r.addr) })
	})
	t.Run("redirected", func(t *testing.T) {
		t.Parallel()
		b, r := rawtest.Serve(t), start(t)
		rawtest.Run(t, b, rawtest.Load(t), func() (net.Conn, error) {
			conn, _ := r.redirected(b.Addr.AddrPort())
			return conn, nil
		})
	})
	t.Run("through two proxies", func(t *testing.T) {
		t.Parallel()
		b, p := rawtest.Serve(t), startPair(t, "all-authenticated")
		p.expose("a.test:80", b.Addr.AddrPort())
		rawtest.Run(t, b, absolute, func() (net.Conn, error) { return (&net.Dialer{}).DialContext(t.Context(), "tcp", p.addr) })
	})
}

// TestMutatedRequests sends random bytes that are nearly requests through two
// proxies, with HTTP/2 between them.
func TestMutatedRequests(t *testing.T) {
	b, p := rawtest.Serve(t), startPair(t, "all-authenticated")
	app := b.Addr.AddrPort()
	p.expose(web, app)
	routes := []*outpb.HttpRoute{{Metadata: defaultMeta("http"), Rules: []*outpb.HttpRoute_Rule{httpRule(balancerOf(web))}}}
	p.controls.set(func() {
		p.controls.policies[app.String()] = &outpb.OutboundPolicy{
			Metadata: serviceMeta("web"), Protocol: &outpb.ProxyProtocol{Kind: &outpb.ProxyProtocol_Http1_{Http1: &outpb.ProxyProtocol_Http1{Routes: routes}}},
		}
	})
	rawtest.Mutate(t, b, 1000, func() (net.Conn, error) {
		conn, _ := p.redirected(app)
		return conn, nil
	})
}
