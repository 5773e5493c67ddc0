package outbound

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/netip"
	"testing"
	"time"

	destpb "github.com/linkerd/linkerd2-proxy-api/go/destination"

	"github.com/weftmesh/weft/proxy/internal/config"
	"github.com/weftmesh/weft/proxy/internal/drain"
	"github.com/weftmesh/weft/proxy/internal/inbound"
	"github.com/weftmesh/weft/proxy/internal/tell"
)

const gatewayID = "gateway.multicluster.serviceaccount.identity.linkerd.cluster.local"

// TestGatewayBetweenClusters takes requests through three proxies: of a client,
// of its peer cluster's gateway, and of the application.
func TestGatewayBetweenClusters(t *testing.T) {
	p := startPair(t, "all-authenticated")
	gateway := p.authorities.Local(t, gatewayID)
	behind := startAs(t, gateway)
	in, err := inbound.New(inbound.Deps{
		Config: config.Config{
			Inbound: config.Direction{
				Listen: []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:0")}, DetectTimeout: 10 * time.Second, ConnectTimeout: time.Second,
				DiscoveryIdle: time.Minute, MaxInFlight: 1000,
			},
			AdminListen: netip.MustParseAddrPort("127.0.0.1:4191"),
			Policy:      config.Policy{Svc: config.Svc{Addr: "127.0.0.1:1"}, Workload: "workload", Default: "all-authenticated", Gateway: config.Suffixes{"svc.cluster.local"}},
		},
		Identity: gateway, Policy: newControls().dial(t), Gateway: behind.out.Gateway(),
		Metrics: tell.New(tell.Config{}), Drain: drain.New(), Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); _ = in.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })

	app := serveHTTP(t, echo("far"))
	behind.controls.service(web, meshed(app.addr, serverID, p.inbound.Addr().Port()))
	mirrored := meshed(in.Addr(), gatewayID, in.Addr().Port())
	mirrored.AuthorityOverride = &destpb.AuthorityOverride{AuthorityOverride: web}
	const here = "web-east.shop.svc.cluster.local:80"
	p.controls.service(here, mirrored)

	c := p.client()
	for range 3 {
		req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://web-east.shop.svc.cluster.local/books?x=1", nil)
		res, body := do(t, c, req)
		if res.StatusCode != 200 || body != "far " || res.Header.Get("X-Host") != "web.shop.svc.cluster.local" || res.Header.Get("X-Uri") != "/books?x=1" || res.Header.Get("X-Proto") != "HTTP/1.1" {
			t.Fatalf("%d %q %v", res.StatusCode, body, res.Header)
		}
	}
	// What the gateway does not know is not found.
	lost := meshed(in.Addr(), gatewayID, in.Addr().Port())
	lost.AuthorityOverride = &destpb.AuthorityOverride{AuthorityOverride: "lost.shop.svc.cluster.local:80"}
	p.controls.service("lost-east.shop.svc.cluster.local:80", lost)
	req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://lost-east.shop.svc.cluster.local/", nil)
	res, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, res.Body)
	_ = res.Body.Close()
	if res.StatusCode != 404 {
		t.Errorf("a lost name: %d", res.StatusCode)
	}
}
