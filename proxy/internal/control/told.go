package control

import (
	"context"
	"strconv"
	"time"

	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"

	"github.com/weftmesh/weft/proxy/internal/config"
	"github.com/weftmesh/weft/proxy/internal/tell"
)

// Told counts what is asked of one service of the control plane (spec/proxy.md
// §15.2, §15.5). The zero value counts nothing.
type Told struct {
	Client  string // identity, destination, policy or trace_collector
	Metrics *tell.Metrics

	addr     string
	requests *tell.Counter
	labels   tell.Labels
}

func (t Told) to(svc config.Svc) Told {
	if t.Metrics == nil {
		return t
	}
	t.addr = svc.Addrs()[0]
	t.labels = tell.Labels{{Name: "addr", Value: t.addr}}
	if svc.Loopback() {
		t.labels = t.labels.And(tell.NoTLS(tell.Loopback))
	} else {
		t.labels = t.labels.And(tell.ServerTLS(svc.Name))
	}
	t.requests = t.Metrics.Counter(tell.ControlRequest, t.labels)
	return t
}

func (t Told) lookup(record, result string) {
	if t.Metrics == nil {
		return
	}
	t.Metrics.Counter(tell.ControlLookups, tell.Labels{
		{Name: "client", Value: t.Client}, {Name: "record_type", Value: record}, {Name: "result", Value: result},
	}).Inc()
}

func (t Told) endpoints(n int) {
	if t.Metrics == nil {
		return
	}
	f := tell.ControlBalancer(t.Client)
	l := tell.Labels{{Name: "addr", Value: t.addr}}
	t.Metrics.Gauge(f.Size, l).Set(int64(n))
	t.Metrics.Counter(f.Updates, l.With("op", "Reset")).Inc()
}

type beganKey struct{}

// TagRPC is part of stats.Handler.
func (t Told) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context {
	return context.WithValue(ctx, beganKey{}, time.Now())
}

// HandleRPC is part of stats.Handler. A watch is one request, and ends when its
// stream does.
func (t Told) HandleRPC(ctx context.Context, s stats.RPCStats) {
	switch end := s.(type) {
	case *stats.Begin:
		t.requests.Inc()
	case *stats.End:
		code := status.Code(end.Error)
		class := "success"
		switch code {
		case 2, 4, 7, 13, 14, 15: // as for everybody's requests (spec/proxy.md §6.7)
			class = "failure"
		}
		l := t.labels.With("status_code", "200")
		t.Metrics.Counter(tell.ControlResponse, l.With("grpc_status", strconv.Itoa(int(code))).With("classification", class)).Inc()
		if began, ok := ctx.Value(beganKey{}).(time.Time); ok {
			t.Metrics.Histogram(tell.ControlLatency, l).Observe(float64(time.Since(began)) / float64(time.Millisecond))
		}
	}
}

// TagConn is part of stats.Handler.
func (t Told) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

// HandleConn is part of stats.Handler.
func (t Told) HandleConn(context.Context, stats.ConnStats) {}
