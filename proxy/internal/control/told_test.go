package control

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"

	"github.com/weftmesh/weft/proxy/internal/config"
	"github.com/weftmesh/weft/proxy/internal/tell"
)

// TestTold follows calls from before there is a connection to their ends.
func TestTold(t *testing.T) {
	m, reg := tell.New(tell.Config{}), prometheus.NewRegistry()
	reg.MustRegister(m)
	told := Told{Client: "policy", Metrics: m}.to(config.Svc{Addr: "policy.linkerd:8090", Name: "policy.id"})
	lines := func() []string {
		families, err := reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		var out []string
		for _, f := range families {
			for _, s := range f.GetMetric() {
				line := f.GetName()
				for _, l := range s.GetLabel() {
					line += fmt.Sprintf(" %s=%s", l.GetName(), l.GetValue())
				}
				out = append(out, fmt.Sprintf("%s %v", line, s.GetCounter().GetValue()+s.GetGauge().GetValue()+float64(s.GetHistogram().GetSampleCount())))
			}
		}
		return out
	}
	check := func(when string, want ...string) {
		t.Helper()
		got := lines()
		for _, w := range want {
			if !slices.Contains(got, w) {
				t.Errorf("%s: no %q in %q", when, w, got)
			}
		}
	}
	const balancer, addr, tls = "control_policy_balancer_", " addr=policy.linkerd:8090", " server_id=policy.id"
	check("before anything",
		"control_dns_resolutions_total client=policy record_type=SRV result=ok 0", "control_dns_resolutions_total client=policy record_type=A/AAAA result=not_found 0",
		balancer+"queue_gate_open_total"+addr+" 1", balancer+"queue_gate_shut_total"+addr+" 0", balancer+"p2c_updates_total"+addr+" op=Add 0",
		balancer+"queue_length"+addr+" 0", balancer+"endpoints"+addr+" endpoint_state=ready 0",
	)
	told.endpoints(2)
	told.HandleConn(t.Context(), &stats.ConnBegin{})
	ctx := told.TagRPC(t.Context(), nil)
	told.HandleRPC(ctx, &stats.Begin{})
	check("while a call waits",
		"control_request_total"+addr+tls+" tls=true 1", balancer+"queue_length"+addr+" 1", balancer+"queue_requests_total"+addr+" 1", balancer+"queue_latency_seconds"+addr+" 0",
		balancer+"p2c_endpoints"+addr+" 2", balancer+"endpoints"+addr+" endpoint_state=ready 1", balancer+"endpoints"+addr+" endpoint_state=pending 1",
		balancer+"p2c_updates_total"+addr+" op=Reset 1",
	)
	told.HandleRPC(ctx, &stats.OutHeader{})
	told.HandleRPC(ctx, &stats.End{Error: status.Error(codes.Unavailable, "gone")})
	told.HandleConn(t.Context(), &stats.ConnEnd{})
	check("after it",
		balancer+"queue_length"+addr+" 0", balancer+"queue_latency_seconds"+addr+" 1", balancer+"endpoints"+addr+" endpoint_state=ready 0",
		"control_response_total"+addr+" classification=failure grpc_status=14"+tls+" status_code=200 tls=true 1",
		"control_response_latency_ms"+addr+tls+" status_code=200 tls=true 1",
	)
	ctx = told.TagRPC(t.Context(), nil)
	told.HandleRPC(ctx, &stats.Begin{})
	told.HandleRPC(ctx, &stats.End{Error: status.FromContextError(context.DeadlineExceeded).Err(), BeginTime: time.Now()})
	told.HandleRPC(context.Background(), &stats.End{Error: errors.New("of nobody")})
	check("after one without a connection", balancer+"queue_length"+addr+" 0", balancer+"queue_latency_seconds"+addr+" 2")
}
