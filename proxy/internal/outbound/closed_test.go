package outbound

import (
	"crypto/tls"
	"net"
	"net/netip"
	"testing"
	"time"

	outpb "github.com/linkerd/linkerd2-proxy-api/go/outbound"

	"github.com/weftmesh/weft/proxy/internal/config"
)

var (
	forbids = &outpb.OpaqueRoute_Filter{Kind: &outpb.OpaqueRoute_Filter_Forbidden{}}
	invalid = &outpb.OpaqueRoute_Filter{Kind: &outpb.OpaqueRoute_Filter_Invalid{}}
)

// The first filter of an opaque route says why its connections are closed, then the
// first of the backend that a connection has come to.
func TestClosedConnectionsAreCountedByReason(t *testing.T) {
	for _, tt := range []struct {
		name           string
		route, backend []*outpb.OpaqueRoute_Filter
		want           string
	}{
		{"forbidden", []*outpb.OpaqueRoute_Filter{forbids}, nil, "forbidden"},
		{"invalid", []*outpb.OpaqueRoute_Filter{invalid}, nil, "invalid_backend"},
		{"the first counts", []*outpb.OpaqueRoute_Filter{forbids, invalid}, nil, "forbidden"},
		{"be it what it may", []*outpb.OpaqueRoute_Filter{invalid, forbids}, nil, "invalid_backend"},
		{"one that is not known", []*outpb.OpaqueRoute_Filter{forbids, {}}, nil, "invalid_policy"},
		{"a forbidden backend", nil, []*outpb.OpaqueRoute_Filter{forbids}, "forbidden"},
		{"an invalid backend", nil, []*outpb.OpaqueRoute_Filter{invalid, forbids}, "invalid_backend"},
		{"a backend's that is not known", nil, []*outpb.OpaqueRoute_Filter{{}}, "invalid_policy"},
		{"the route's before the backend's", []*outpb.OpaqueRoute_Filter{forbids}, []*outpb.OpaqueRoute_Filter{invalid}, "forbidden"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := start(t, func(c *config.Config) { c.Outbound.DetectTimeout = 50 * time.Millisecond }) // what is not known is looked at
			const db = "db.shop.svc.cluster.local:5432"
			app := acceptEach(t, func(net.Conn) { t.Error("the application was reached") })
			r.controls.service(db, plain(app))
			p := opaquePolicy(db)
			rule := p.GetProtocol().GetOpaque().GetRoutes()[0].GetRules()[0]
			rule.Filters, rule.GetBackends().GetFirstAvailable().Backends[0].Filters = tt.route, tt.backend
			to := netip.MustParseAddrPort("127.0.0.9:5432")
			r.controls.set(func() { r.controls.policies[to.String()] = p })
			_, br := r.redirected(to)
			if n, err := br.Read(make([]byte, 1)); n != 0 || err == nil {
				t.Error("the connection was served")
			}
			eventually(t, "it is counted", func() bool {
				return r.series("outbound_tcp_route_close_total", map[string]string{"error": tt.want}) == 1 &&
					r.series("outbound_tcp_errors_total", map[string]string{"error": "unexpected"}) == 1
			})
		})
	}
}

// A backend that closes its share of the connections leaves the others theirs.
func TestClosedShareOfConnections(t *testing.T) {
	r := start(t)
	const db = "db.shop.svc.cluster.local:5432"
	r.controls.service(db, plain(acceptEach(t, func(c net.Conn) { _, _ = c.Write([]byte("hi\n")) })))
	p := opaquePolicy(db)
	rule := p.GetProtocol().GetOpaque().GetRoutes()[0].GetRules()[0]
	share := func(filters ...*outpb.OpaqueRoute_Filter) *outpb.OpaqueRoute_WeightedRouteBackend {
		return &outpb.OpaqueRoute_WeightedRouteBackend{Weight: 1, Backend: &outpb.OpaqueRoute_RouteBackend{Backend: balancerOf(db), Filters: filters}}
	}
	rule.Backends = &outpb.OpaqueRoute_Distribution{Kind: &outpb.OpaqueRoute_Distribution_RandomAvailable_{RandomAvailable: &outpb.OpaqueRoute_Distribution_RandomAvailable{
		Backends: []*outpb.OpaqueRoute_WeightedRouteBackend{share(invalid), share()},
	}}}
	to := netip.MustParseAddrPort("127.0.0.9:5432")
	r.controls.set(func() { r.controls.policies[to.String()] = p })
	served, closed := 0, 0
	for range 200 { // that all go one way is less likely than any other failure
		conn, br := r.redirected(to)
		if line, err := br.ReadString('\n'); err == nil && line == "hi\n" {
			served++
		} else {
			closed++
		}
		_ = conn.Close()
		if served > 0 && closed > 0 {
			return
		}
	}
	t.Errorf("%d were served, %d closed", served, closed)
}

// TLS that is routed by its name heeds the filters of its backends.
func TestTLSBackendCloses(t *testing.T) {
	for want, filter := range map[string]*outpb.TlsRoute_Filter{
		"forbidden":       {Kind: &outpb.TlsRoute_Filter_Forbidden{}},
		"invalid_backend": {Kind: &outpb.TlsRoute_Filter_Invalid{}},
	} {
		r := start(t)
		const a = "a.shop.svc.cluster.local:443"
		r.controls.service(a, plain(serveTLS(t, r.ca, "a")))
		route := tlsRoute("closed", a, nil, exactly("a.example.com"))
		route.GetRules()[0].GetBackends().GetFirstAvailable().Backends[0].Filters = []*outpb.TlsRoute_Filter{filter}
		to := netip.MustParseAddrPort("127.0.0.9:443")
		r.controls.set(func() {
			r.controls.policies[to.String()] = &outpb.OutboundPolicy{Metadata: serviceMeta("egress"), Protocol: &outpb.ProxyProtocol{Kind: &outpb.ProxyProtocol_Tls_{Tls: &outpb.ProxyProtocol_Tls{
				Routes: []*outpb.TlsRoute{route},
			}}}}
		})
		conn, _ := r.redirected(to)
		secure := tls.Client(conn, &tls.Config{ServerName: "a.example.com", InsecureSkipVerify: true, MinVersion: tls.VersionTLS13})
		if err := secure.HandshakeContext(t.Context()); err == nil {
			t.Errorf("%s: the handshake went through", want)
		}
		eventually(t, "it is counted", func() bool {
			return r.series("outbound_tls_route_close_total", map[string]string{"error": want, "route_name": "closed"}) == 1
		})
	}
}

// A client that asks for a URI speaks HTTP whatever the policy says of bytes; what
// closes connections answers its requests.
func TestClosingAnswersRequests(t *testing.T) {
	for _, tt := range []struct {
		name           string
		route, backend []*outpb.OpaqueRoute_Filter
		status         int
	}{
		{"open", nil, nil, 200},
		{"a route that forbids", []*outpb.OpaqueRoute_Filter{forbids}, nil, 403},
		{"a backend that is none", nil, []*outpb.OpaqueRoute_Filter{invalid}, 500},
	} {
		r := start(t)
		r.controls.service(web, plain(serveHTTP(t, echo("a")).addr))
		p := opaquePolicy(web)
		rule := p.GetProtocol().GetOpaque().GetRoutes()[0].GetRules()[0]
		rule.Filters, rule.GetBackends().GetFirstAvailable().Backends[0].Filters = tt.route, tt.backend
		r.policy(p)
		if res, _ := get(t, r.client(), base+"/"); res.StatusCode != tt.status {
			t.Errorf("%s: %d %q", tt.name, res.StatusCode, res.Header.Get("L5d-Proxy-Error"))
		}
	}
}
