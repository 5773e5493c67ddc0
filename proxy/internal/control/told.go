package control

import (
	"context"
	"strconv"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"

	"github.com/weftmesh/weft/proxy/internal/classify"
	"github.com/weftmesh/weft/proxy/internal/config"
	"github.com/weftmesh/weft/proxy/internal/tell"
)

// Told counts what is asked of one service of the control plane (spec/proxy.md
// §15.2, §15.5). The zero value counts nothing.
type Told struct {
	Client  string // identity, destination, policy or trace_collector
	Metrics *tell.Metrics

	families tell.Balancer
	balancer tell.Labels
	requests *tell.Counter
	labels   tell.Labels
	now      *moment
}

// moment is what is true of the connections now.
type moment struct {
	size, ready atomic.Int64 // endpoints, and those that there is a connection to
}

func (t Told) to(svc config.Svc) Told {
	if t.Metrics == nil {
		return t
	}
	addr := tell.Labels{{Name: "addr", Value: svc.Addrs()[0]}}
	if svc.Loopback() {
		t.labels = addr.And(tell.NoTLS(tell.Loopback))
	} else {
		t.labels = addr.And(tell.ServerTLS(svc.Name))
	}
	t.requests = t.Metrics.Counter(tell.ControlRequest, t.labels)
	t.families, t.balancer, t.now = tell.ControlBalancer(t.Client), addr, new(moment)
	t.Metrics.BindBalancer(t.families, t.balancer)
	t.Metrics.Gauge(t.families.GateOpened, t.balancer).Set(time.Now().Unix()) // and so it stays: calls wait for as long as it takes
	for _, record := range []string{"A/AAAA", "SRV"} {
		for _, result := range []string{"ok", "not_found"} {
			t.lookups(record, result)
		}
	}
	return t
}

func (t Told) lookups(record, result string) *tell.Counter {
	return t.Metrics.Counter(tell.ControlLookups, tell.Labels{
		{Name: "client", Value: t.Client}, {Name: "record_type", Value: record}, {Name: "result", Value: result},
	})
}

func (t Told) lookup(record, result string) {
	if t.Metrics != nil {
		t.lookups(record, result).Inc()
	}
}

func (t Told) endpoints(n int) {
	if t.Metrics == nil {
		return
	}
	t.now.size.Store(int64(n))
	t.Metrics.Counter(t.families.Updates, t.balancer.With("op", "Reset")).Inc()
	t.show()
}

// show sets the gauges of endpoints.
func (t Told) show() {
	size := t.now.size.Load()
	ready := max(0, min(t.now.ready.Load(), size))
	t.Metrics.Gauge(t.families.Size, t.balancer).Set(size)
	t.Metrics.Gauge(t.families.Endpoints, t.balancer.With("endpoint_state", "ready")).Set(ready)
	t.Metrics.Gauge(t.families.Endpoints, t.balancer.With("endpoint_state", "pending")).Set(size - ready)
}

// call is one RPC.
type call struct {
	began time.Time
	sent  atomic.Bool // it has a connection
}

type callKey struct{}

// TagRPC is part of stats.Handler.
func (t Told) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context {
	return context.WithValue(ctx, callKey{}, &call{began: time.Now()})
}

// HandleRPC is part of stats.Handler. A watch is one request, and ends when its
// stream does; it waits until there is a connection for it.
func (t Told) HandleRPC(ctx context.Context, s stats.RPCStats) {
	c, ok := ctx.Value(callKey{}).(*call)
	if !ok {
		return
	}
	switch s := s.(type) {
	case *stats.Begin:
		t.requests.Inc()
		t.Metrics.Counter(t.families.Requests, t.balancer).Inc()
		t.Metrics.Gauge(t.families.Length, t.balancer).Add(1)
	case *stats.OutHeader:
		t.leaves(c)
	case *stats.End:
		t.leaves(c)
		code := strconv.Itoa(int(status.Code(s.Error)))
		class := "success"
		if classify.GRPCFailure(code) {
			class = "failure"
		}
		l := t.labels.With("status_code", "200")
		t.Metrics.Counter(tell.ControlResponse, l.With("grpc_status", code).With("classification", class)).Inc()
		t.Metrics.Histogram(tell.ControlLatency, l).Observe(float64(time.Since(c.began)) / float64(time.Millisecond))
	}
}

// leaves counts that the call has got its connection, or never will.
func (t Told) leaves(c *call) {
	if !c.sent.Swap(true) {
		t.Metrics.Gauge(t.families.Length, t.balancer).Add(-1)
		t.Metrics.Histogram(t.families.Latency, t.balancer).Observe(time.Since(c.began).Seconds())
	}
}

// TagConn is part of stats.Handler.
func (t Told) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

// HandleConn is part of stats.Handler.
func (t Told) HandleConn(_ context.Context, s stats.ConnStats) {
	switch s.(type) {
	case *stats.ConnBegin:
		t.now.ready.Add(1)
	case *stats.ConnEnd:
		t.now.ready.Add(-1)
	default:
		return
	}
	t.show()
}
