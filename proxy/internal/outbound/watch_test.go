package outbound

import (
	"net/http"
	"testing"

	tappb "github.com/linkerd/linkerd2-proxy-api/go/tap"

	"github.com/weftmesh/weft/proxy/internal/tap/taptest"
)

func TestTap(t *testing.T) {
	p := startPair(t, "all-authenticated")
	app := serveHTTP(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/grpc" {
			w.Header().Set("Content-Type", "application/grpc")
			w.Header().Set(http.TrailerPrefix+"Grpc-Status", "3")
		}
		w.WriteHeader(201)
	}))
	ep := meshed(app.addr, serverID, p.inbound.Addr().Port())
	ep.MetricLabels = map[string]string{"deployment": "web"}
	p.controls.service(web, ep)
	events := taptest.Observe(t, p.tap, p.authorities.Local(t, clientID), p.authorities.Local(t, taptest.Client), 2)
	c := p.client()
	for _, path := range []string{"/books?x=1", "/grpc"} {
		req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://web.shop.svc.cluster.local"+path, nil)
		do(t, c, req)
	}
	got := events()
	if len(got) != 6 {
		t.Fatalf("%d events, want 6: %v", len(got), got)
	}
	init, head, end := got[0], got[1].GetHttp().GetResponseInit(), got[2].GetHttp().GetResponseEnd()
	labels := init.GetDestinationMeta().GetLabels()
	if init.GetProxyDirection() != tappb.TapEvent_OUTBOUND || init.GetHttp().GetRequestInit().GetAuthority() != web[:len(web)-3] ||
		init.GetHttp().GetRequestInit().GetPath() != "/books" || init.GetDestination().GetPort() != uint32(app.addr.Port()) ||
		labels["tls"] != "true" || labels["server_id"] != serverID || labels["deployment"] != "web" || init.GetSourceMeta().GetLabels()["tls"] != "loopback" {
		t.Errorf("%v", init)
	}
	if head.GetHttpStatus() != 201 || end.GetEos() == nil || end.GetEos().GetEnd() != nil {
		t.Errorf("%v %v", head, end)
	}
}
