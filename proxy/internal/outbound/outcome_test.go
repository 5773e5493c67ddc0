package outbound

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weftmesh/weft/proxy/internal/balance"
	"github.com/weftmesh/weft/proxy/internal/endpoint"
	"github.com/weftmesh/weft/proxy/internal/frame"
	"github.com/weftmesh/weft/proxy/internal/h2"
	"github.com/weftmesh/weft/proxy/internal/message"
	"github.com/weftmesh/weft/proxy/internal/resolve"
	"github.com/weftmesh/weft/proxy/internal/tell"
)

// TestOutcomes are the labels of spec/proxy.md §6.7 and §15.4: of the families of
// routes, and of those of endpoints.
func TestOutcomes(t *testing.T) {
	reset := func(c frame.Code) error { return fmt.Errorf("x: %w", &h2.ResetError{Code: c}) }
	const (
		h1   = "HTTP/1"
		two  = "HTTP/2"
		grpc = "gRPC"
	)
	for _, tt := range []struct {
		client string
		err    error
		route  outcome
		old    tell.End
	}{
		{h1, balance.ErrFailfast, outcome{err: "FAIL_FAST"}, tell.End{Error: "unclassified"}},
		{h1, errShed, outcome{err: "LOAD_SHED"}, tell.End{Error: "unclassified"}},
		{h1, errRequestTimeout, outcome{err: "REQUEST_TIMEOUT"}, tell.End{Error: "timeout"}},
		{h1, errResponseTimeout, outcome{err: "RESPONSE_STREAM_TIMEOUT"}, tell.End{Error: "timeout"}},
		{h1, errHeadersTimeout, outcome{err: "RESPONSE_HEADERS_TIMEOUT"}, tell.End{Error: "timeout"}},
		{h1, errIdleTimeout, outcome{err: "IDLE_TIMEOUT"}, tell.End{Error: "timeout"}},
		{h1, errRequireID, outcome{err: "UNKNOWN"}, tell.End{Error: "unclassified"}},
		{h1, errors.New("connection reset"), outcome{status: 502, grpc: "14"}, tell.End{Status: 502}},
		{two, errors.New("connection reset"), outcome{status: 502, grpc: "14"}, tell.End{Status: 502}},
		{grpc, errors.New("connection reset"), outcome{status: 200, grpc: "14"}, tell.End{Status: 200, GRPC: "14"}},
		{h1, &endpoint.DialError{Timeout: true, Err: errors.New("late")}, outcome{status: 504, grpc: "4"}, tell.End{Status: 504}},
		{two, reset(frame.Cancel), outcome{err: "CANCEL"}, tell.End{Error: "h2(CANCEL)"}},
		{two, reset(frame.RefusedStream), outcome{err: "REFUSED"}, tell.End{Error: "h2(REFUSED_STREAM)"}},
		{two, reset(frame.EnhanceYourCalm), outcome{err: "ENHANCE_YOUR_CALM"}, tell.End{Error: "h2(ENHANCE_YOUR_CALM)"}},
		{two, reset(frame.InternalError), outcome{err: "RESET"}, tell.End{Error: "h2(INTERNAL_ERROR)"}},
		{two, reset(4711), outcome{err: "RESET"}, tell.End{Error: "h2(UNKNOWN)"}},
		{h1, reset(frame.Cancel), outcome{status: 502, grpc: "14"}, tell.End{Status: 502}},
		{h1, failed(&resolve.Fail{Status: 418}), outcome{status: 418, grpc: "9"}, tell.End{Status: 418}},
		{grpc, failed(&resolve.Fail{GRPC: true, Status: 7}), outcome{status: 200, grpc: "7"}, tell.End{Status: 200}},
	} {
		x := &exchange{r: &message.Request{Version: message.HTTP11}, grpc: tt.client == grpc}
		if tt.client != h1 {
			x.r.Version = message.HTTP2
		}
		f := x.faultOf(tt.err)
		if got := x.outcomeOf(f); got != tt.route {
			t.Errorf("%s, %v: %+v, want %+v", tt.client, tt.err, got, tt.route)
		}
		if got := x.endOf(f); got != tt.old {
			t.Errorf("%s, %v: endpoint's %+v, want %+v", tt.client, tt.err, got, tt.old)
		}
	}
}

func TestRouteLabels(t *testing.T) {
	r := &rig{t: t, registry: prometheus.NewRegistry()}
	m := tell.New(tell.Config{})
	r.registry.MustRegister(m)
	route := tell.Labels{{Name: "route_name", Value: "r"}}
	for _, grpc := range []bool{false, true} {
		all := newRouteTell(m, route, "", grpc)
		all.retriable()
		named := all.host("web.example")
		if again := all.host("web.example"); again != named || named == all {
			t.Error("a name is not counted apart")
		}
		if all.host("10.0.0.1") != all || all.host("[fd00::1]") != all {
			t.Error("an address is a name")
		}
		b := named.backend(tell.Labels{{Name: "backend_name", Value: "b"}})
		b.start()
		o := outcome{status: 200, grpc: "5"}
		all.end(0, o)
		named.end(0, o)
		b.end(0, o)
		b.end(0, outcome{})
		kind, label, value := "http", "http_status", "200"
		if grpc {
			kind, label, value = "grpc", "grpc_status", "NOT_FOUND"
		}
		for host := range map[string]bool{"": true, "web.example": true} {
			if got := r.series("outbound_"+kind+"_route_request_statuses_total", map[string]string{"hostname": host, "error": "", label: value}); got != 1 {
				t.Errorf("%s, %q: %v, want 1", kind, host, got)
			}
		}
		if got := r.series("outbound_"+kind+"_route_backend_response_statuses_total", map[string]string{"route_name": "r", "backend_name": "b", label: value}); got != 1 {
			t.Errorf("%s: %v of the backend, want 1", kind, got)
		}
	}
	families, err := r.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	there := map[string]bool{}
	for _, f := range families {
		there[f.GetName()] = true
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetName() == "hostname" && m.GetLabel()[0].GetName() == "backend_name" {
					t.Errorf("%s has a host", f.GetName())
				}
			}
		}
	}
	for _, kind := range []string{"http", "grpc"} {
		for _, what := range []string{"requests", "successes", "limit_exceeded", "overflow"} {
			if name := "outbound_" + kind + "_route_retry_" + what + "_total"; !there[name] {
				t.Errorf("%s is not there before the first retry", name)
			}
		}
	}
}

// TestWhatFailsIsCountedWhereItWent: a backend counts what it was asked for in vain.
func TestWhatFailsIsCountedWhereItWent(t *testing.T) {
	r := start(t)
	r.controls.service(web)
	req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://web.shop.svc.cluster.local/", nil)
	if res, body := do(t, r.client(), req); res.StatusCode != 504 {
		t.Fatalf("got %d %s", res.StatusCode, body)
	}
	for _, family := range []string{"outbound_http_route_request_statuses_total", "outbound_http_route_backend_response_statuses_total"} {
		if got := r.series(family, map[string]string{"error": "FAIL_FAST", "http_status": ""}); got != 1 {
			t.Errorf("%s: %v, want 1", family, got)
		}
	}
	if got := r.series("outbound_http_route_backend_requests_total", map[string]string{"backend_name": "web"}); got != 1 {
		t.Errorf("%v requests of the backend, want 1", got)
	}
	// Who reads where connections went is not told of routes that none took.
	all, err := r.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range all {
		if strings.HasPrefix(f.GetName(), "outbound_tcp_route_") {
			t.Errorf("%s is there, and no connection was of bytes", f.GetName())
		}
	}
}
