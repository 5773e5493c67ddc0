package rpc

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors"
	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/logging"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
)

// calls is what go-grpc-middleware's interceptor reports calls to: it counts them
// and logs their end, in one pass. The middleware's own reporters, for Prometheus
// and for logs, would be one interceptor each and make their fields when a call
// begins. A stream that lives for days keeps all that, and with it a stack of
// twice the size: so fields are made when a call ends, and only if they are logged.
type calls struct {
	started, handled, received, sent *prometheus.CounterVec
	// exports says that the process exports traces. Calls have spans then.
	exports bool

	mu      sync.RWMutex
	methods map[name]*method // those that are registered: no other is intercepted
}

type name struct{ service, method string }

// method is what the calls of one method count in.
type method struct {
	name
	kind                    string
	started, received, sent prometheus.Counter
}

var _ interceptors.ServerReportable = (*calls)(nil)

// newCalls makes the metrics of go-grpc-middleware's provider, by their names.
func newCalls(exports bool) *calls {
	labels := []string{"grpc_type", "grpc_service", "grpc_method"}
	vec := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	return &calls{
		exports:  exports,
		methods:  make(map[name]*method),
		started:  vec("grpc_server_started_total", "Total number of RPCs started on the server.", labels...),
		handled:  vec("grpc_server_handled_total", "Total number of RPCs completed on the server, regardless of success or failure.", append(labels, "grpc_code")...),
		received: vec("grpc_server_msg_received_total", "Total number of RPC stream messages received on the server.", labels...),
		sent:     vec("grpc_server_msg_sent_total", "Total number of gRPC stream messages sent by the server.", labels...),
	}
}

// Describe implements prometheus.Collector.
func (c *calls) Describe(ch chan<- *prometheus.Desc) {
	for _, v := range []*prometheus.CounterVec{c.started, c.handled, c.received, c.sent} {
		v.Describe(ch)
	}
}

// Collect implements prometheus.Collector.
func (c *calls) Collect(ch chan<- prometheus.Metric) {
	for _, v := range []*prometheus.CounterVec{c.started, c.handled, c.received, c.sent} {
		v.Collect(ch)
	}
}

// ServerReporter begins a call.
func (c *calls) ServerReporter(ctx context.Context, meta interceptors.CallMeta) (interceptors.Reporter, context.Context) {
	m := c.method(name{meta.Service, meta.Method}, string(meta.Typ))
	m.started.Inc()
	if !c.exports {
		ctx = withCallersTrace(ctx)
	}
	return &call{calls: c, method: m, ctx: ctx}, ctx
}

// method finds a method's counters, which it makes with the first call.
func (c *calls) method(n name, kind string) *method {
	c.mu.RLock()
	m := c.methods[n]
	c.mu.RUnlock()
	if m != nil {
		return m
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if m := c.methods[n]; m != nil {
		return m
	}
	m = &method{
		name: n, kind: kind,
		started:  c.started.WithLabelValues(kind, n.service, n.method),
		received: c.received.WithLabelValues(kind, n.service, n.method),
		sent:     c.sent.WithLabelValues(kind, n.service, n.method),
	}
	c.methods[n] = m
	return m
}

// call is one that has begun.
type call struct {
	*method
	calls *calls
	ctx   context.Context //nolint:containedctx // the middleware tells of a call's end without it
}

// PostMsgSend implements interceptors.Reporter.
func (c *call) PostMsgSend(_ any, err error, _ time.Duration) {
	if err == nil {
		c.sent.Inc()
	}
}

// PostMsgReceive implements interceptors.Reporter.
func (c *call) PostMsgReceive(_ any, err error, _ time.Duration) {
	if err == nil {
		c.received.Inc()
	}
}

// PostCall implements interceptors.Reporter. The record has the fields of the
// middleware's logging.
func (c *call) PostCall(err error, took time.Duration) {
	code := codeOf(err)
	c.calls.handled.WithLabelValues(c.kind, c.service, c.name.method, code.String()).Inc()
	level := slog.Level(levelOf(code))
	if !slog.Default().Enabled(c.ctx, level) {
		return
	}
	fields := logging.Fields{logging.ServiceFieldKey, c.service, logging.MethodFieldKey, c.name.method}
	if p, ok := peer.FromContext(c.ctx); ok {
		fields = append(fields, "peer.address", p.Addr.String())
	}
	fields = append(fields, "grpc.start_time", time.Now().Add(-took).Format(time.RFC3339), "grpc.code", code.String())
	if err != nil {
		fields = append(fields, "grpc.error", err.Error())
	}
	fields = append(fields, logging.DurationToTimeMillisFields(took)...)
	slog.Default().Log(c.ctx, level, "finished call", fields...)
}

// codeOf is the code that gRPC makes of what a handler returned.
func codeOf(err error) codes.Code {
	if s, ok := status.FromError(err); ok {
		return s.Code()
	}
	return status.FromContextError(err).Code()
}

// levelOf is how loudly the end of a call is logged. A proxy that asks for what
// isn't there, goes away or is told to is everyday life.
func levelOf(code codes.Code) logging.Level {
	switch code {
	case codes.Unknown, codes.Internal, codes.DataLoss:
		return logging.LevelError
	case codes.ResourceExhausted, codes.Unimplemented:
		return logging.LevelWarn
	default:
		return logging.LevelDebug
	}
}
