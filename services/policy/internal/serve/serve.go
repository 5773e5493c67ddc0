// Package serve answers proxies: the inbound and outbound policy APIs of
// Linkerd, as calls and as streams, and the outbound one of our own.
//
// A stream holds what was sent and compares it with the newest answer; between
// two sends it holds nothing else, so a slow proxy costs one view and never
// delays another. Nothing is answered before the tables are complete.
package serve

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/linkerd/linkerd2-proxy-api/go/inbound"
	"github.com/linkerd/linkerd2-proxy-api/go/outbound"
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weftmesh/weft/services/kit/conf"
	"github.com/weftmesh/weft/services/policy/internal/derive"
	"github.com/weftmesh/weft/services/policy/internal/table"
)

// Config bounds what a client can cost. The zero value works.
type Config struct {
	SendTimeout time.Duration `help:"time a stream's send may be blocked by its reader before the stream is ended; 0 means 30s"`
}

const defaultSendTimeout = 30 * time.Second

// Check judges the settings.
func (c Config) Check() error {
	if c.SendTimeout < 0 {
		return conf.Bad("SendTimeout", "%v is negative", c.SendTimeout)
	}
	return nil
}

// tables is what answers are made from.
type tables interface {
	Workload(derive.Workload) (table.Subject, error)
	Service(namespace, name string) (*table.Service, error)
	Target(a netip.Addr, source string) (table.Target, error)
	WatchWorkload(derive.Workload) *table.Watch
	WatchService(namespace, name string) *table.Watch
	WatchTarget(a netip.Addr, source string) *table.Watch
	// What people are told besides.
	Refused(parent string) ([]string, table.Position)
	Fork() (*table.Tables, error)
}

// Server answers the APIs.
type Server struct {
	tables  tables
	cluster derive.Cluster
	timeout time.Duration
	metrics *metrics
	tracer  trace.Tracer

	stop    sync.Once
	stopped chan struct{}
}

// New makes a server of what the tables say.
func New(t tables, cluster derive.Cluster, cfg Config, reg prometheus.Registerer) *Server {
	timeout := cfg.SendTimeout
	if timeout == 0 {
		timeout = defaultSendTimeout
	}
	return &Server{
		tables:  t,
		cluster: cluster,
		timeout: timeout,
		metrics: newMetrics(reg),
		tracer:  otel.Tracer("github.com/weftmesh/weft/services/policy"),
		stopped: make(chan struct{}),
	}
}

// Register adds the APIs to a gRPC server, which must have been made with Options.
func (s *Server) Register(g grpc.ServiceRegistrar) {
	inbound.RegisterInboundServerPoliciesServer(g, inboundAPI{Server: s})
	outbound.RegisterOutboundPoliciesServer(g, outboundAPI{Server: s})
	g.RegisterService(routesDesc(), routesAPI{s})
	registerExplain(g, s)
}

// Run ends every stream when ctx is done. A stream ends with OK, so that its
// proxy asks another replica at once.
func (s *Server) Run(ctx context.Context) error {
	<-ctx.Done()
	s.stop.Do(func() { close(s.stopped) })
	return nil
}

// view is the newest state of what a stream watches.
type view struct {
	answer *derive.Answer
	// gone means that the subject is no more: the stream is complete.
	gone bool
	// Neither: it is not known now, and the last answer holds.
}

// stream sends a first view and then each that differs from the last sent.
func (s *Server) stream(api string, out grpc.ServerStream, w *table.Watch, first view, look func() (view, error)) error {
	s.metrics.streams.WithLabelValues(api).Inc()
	defer s.metrics.streams.WithLabelValues(api).Dec()
	ctx := out.Context()
	if err := s.send(ctx, out, first.answer); err != nil {
		return err
	}
	sent := first.answer
	for {
		select {
		case <-ctx.Done():
			return status.FromContextError(ctx.Err()).Err()
		case <-s.stopped:
			return nil
		case <-w.C:
		}
		cause := w.Take()
		now, err := s.derive(ctx, api, cause, look)
		switch {
		case err != nil:
			return err
		case now.gone:
			return nil
		case now.answer == nil || now.answer.Equal(sent):
			continue
		}
		if err := s.write(ctx, api, cause, out, now.answer); err != nil {
			return err
		}
		sent = now.answer
	}
}

// derive looks at the tables, within the trace of the change that asked for it.
func (s *Server) derive(ctx context.Context, api string, c table.Cause, look func() (view, error)) (view, error) {
	_, span := s.span(ctx, c, "derive "+api)
	defer span.End()
	return look()
}

// write sends a changed answer and observes how long the change took to here.
func (s *Server) write(ctx context.Context, api string, c table.Cause, out grpc.ServerStream, a *derive.Answer) error {
	_, span := s.span(ctx, c, "stream write")
	defer span.End()
	if err := s.send(ctx, out, a); err != nil {
		return err
	}
	if !c.ObservedAt.IsZero() {
		s.metrics.propagation.WithLabelValues(api).Observe(time.Since(c.ObservedAt).Seconds())
	}
	return nil
}

// span starts a child of the change's trace; without one there is no span, so
// that a stream's first answer does not begin a trace of its own.
func (s *Server) span(ctx context.Context, c table.Cause, name string) (context.Context, trace.Span) {
	if !c.Trace.IsValid() {
		return ctx, noop.Span{}
	}
	return s.tracer.Start(trace.ContextWithRemoteSpanContext(ctx, c.Trace), name)
}

// errBlocked ends a stream whose reader does not read.
var errBlocked = errors.New("the client has not read for too long")

// send gives the answer to gRPC. If the client's window stays full for the
// time-out the stream is given up; gRPC then releases the blocked goroutine.
func (s *Server) send(ctx context.Context, out grpc.ServerStream, a *derive.Answer) error {
	done := make(chan error, 1)
	go func() { done <- sendMsg(out, a) }()
	timer := time.NewTimer(s.timeout)
	defer timer.Stop()
	select {
	case err := <-done:
		if err != nil {
			return fmt.Errorf("sending: %w", err)
		}
		return nil
	case <-timer.C:
		s.metrics.blocked.Inc()
		return status.Error(codes.Unavailable, errBlocked.Error())
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	case <-s.stopped:
		return nil
	}
}

// sendMsg is SendMsg for a goroutine that gRPC's own recovery does not cover.
func sendMsg(out grpc.ServerStream, a *derive.Answer) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = status.Errorf(codes.Internal, "panic: %v", p)
		}
	}()
	return out.SendMsg(a) //nolint:wrapcheck // wrapped by send
}

// statusOf maps what the tables say to what gRPC clients understand.
func statusOf(err error) error {
	if errors.Is(err, table.ErrIncomplete) {
		return status.Error(codes.Unavailable, err.Error())
	}
	return err
}
