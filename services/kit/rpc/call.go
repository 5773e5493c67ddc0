package rpc

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
)

// calls counts calls by their method, under the names that go-grpc-prometheus
// gave them. It is not that library, nor a chain of interceptors, since a stream
// that lives for days pays for all that is made at its start, and for the depth
// of its goroutine's stack.
type calls struct {
	started, handled, received, sent *prometheus.CounterVec

	methods sync.Map // full method -> *method; only those that are registered
}

// method is what calls of one method count in.
type method struct {
	kind, service, name     string
	started, received, sent prometheus.Counter
}

func newCalls() *calls {
	labels := []string{"grpc_type", "grpc_service", "grpc_method"}
	vec := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	return &calls{
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

// method finds a method's counters, which it makes with the first call.
func (c *calls) method(full, kind string) *method {
	if m, ok := c.methods.Load(full); ok {
		return m.(*method) //nolint:forcetypeassert // nothing else is in it
	}
	service, name, ok := strings.Cut(strings.TrimPrefix(full, "/"), "/")
	if !ok {
		service, name = "unknown", "unknown"
	}
	m, _ := c.methods.LoadOrStore(full, &method{
		kind: kind, service: service, name: name,
		started:  c.started.WithLabelValues(kind, service, name),
		received: c.received.WithLabelValues(kind, service, name),
		sent:     c.sent.WithLabelValues(kind, service, name),
	})
	return m.(*method) //nolint:forcetypeassert // nothing else is in it
}

// ended counts the end of a call.
func (c *calls) ended(m *method, err error) {
	c.handled.WithLabelValues(m.kind, m.service, m.name, codeOf(err).String()).Inc()
}

// codeOf is the code that gRPC makes of what a handler returned.
func codeOf(err error) codes.Code {
	if s, ok := status.FromError(err); ok {
		return s.Code()
	}
	return status.FromContextError(err).Code()
}

// unary counts a call with one answer.
func (c *calls) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	m := c.method(info.FullMethod, "unary")
	m.started.Inc()
	m.received.Inc()
	resp, err := next(ctx, req)
	if err == nil {
		m.sent.Inc()
	}
	c.ended(m, err)
	return resp, err
}

// stream counts a streaming call, logs its end, and turns a panic of its handler
// into an error.
func (m *metrics) stream(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) (err error) {
	o := &observed{ServerStream: ss, method: m.calls.method(info.FullMethod, kindOf(info)), began: time.Now()}
	o.method.started.Inc()
	defer func() {
		if p := recover(); p != nil {
			err = m.recovered(ss.Context(), p)
		}
		m.calls.ended(o.method, err)
		o.log(err)
	}()
	return next(srv, o)
}

func kindOf(info *grpc.StreamServerInfo) string {
	switch {
	case !info.IsServerStream:
		return "client_stream"
	case !info.IsClientStream:
		return "server_stream"
	default:
		return "bidi_stream"
	}
}

// observed is a stream whose messages are counted.
type observed struct {
	grpc.ServerStream
	method *method
	began  time.Time
}

func (o *observed) SendMsg(m any) error {
	err := o.ServerStream.SendMsg(m)
	if err == nil {
		o.method.sent.Inc()
	}
	return err //nolint:wrapcheck // gRPC looks at what it returned
}

func (o *observed) RecvMsg(m any) error {
	err := o.ServerStream.RecvMsg(m)
	if err == nil {
		o.method.received.Inc()
	}
	return err //nolint:wrapcheck // gRPC looks at what it returned
}

// log writes what the logging middleware writes of a short call.
func (o *observed) log(err error) {
	ctx, code := o.Context(), codeOf(err)
	level := slog.Level(levelOf(code))
	if !slog.Default().Enabled(ctx, level) {
		return
	}
	fields := []any{"grpc.service", o.method.service, "grpc.method", o.method.name}
	if p, ok := peer.FromContext(ctx); ok {
		fields = append(fields, "peer.address", p.Addr.String())
	}
	fields = append(fields, "grpc.start_time", o.began.Format(time.RFC3339), "grpc.code", code.String())
	if err != nil {
		fields = append(fields, "grpc.error", err.Error())
	}
	fields = append(fields, "grpc.time_ms", fmt.Sprint(float32(time.Since(o.began).Nanoseconds()/1000)/1000))
	slog.Default().Log(ctx, level, "finished call", fields...)
}
