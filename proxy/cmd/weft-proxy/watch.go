package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"time"

	"github.com/weftmesh/weft/proxy/internal/accesslog"
	"github.com/weftmesh/weft/proxy/internal/config"
	"github.com/weftmesh/weft/proxy/internal/control"
	"github.com/weftmesh/weft/proxy/internal/identity"
	"github.com/weftmesh/weft/proxy/internal/span"
	"github.com/weftmesh/weft/proxy/internal/tap"
	"github.com/weftmesh/weft/proxy/internal/tell"
)

// watchers are those who look at requests, where the environment asks for them:
// the others are nil, and cost nothing.
type watchers struct {
	tap    *tap.Registry
	server *tap.Server
	tapAt  net.Listener
	spans  *span.Exporter
	access *accesslog.Log
	close  func()
}

// watch makes them. Nothing runs, but tap's port is bound.
func watch(ctx context.Context, cfg config.Config, local *identity.Local, m *tell.Metrics, stderr io.Writer, log *slog.Logger) (*watchers, error) {
	w := &watchers{close: func() {}}
	for _, f := range []tell.Family{tell.SpanStreams, tell.SpanRequests, tell.SpanExports} {
		m.Counter(f, nil) // which are there without a collector, too
	}
	if format, ok := accesslog.Formats[cfg.AccessLog]; ok {
		dropped := m.Counter(tell.AccessLogDropped, nil)
		w.access = accesslog.New(stderr, format, dropped.Inc)
	}
	if cfg.Trace.Svc.Addr != "" {
		if err := w.trace(ctx, cfg.Trace, cfg.DNS, local, m, log); err != nil {
			return nil, err
		}
	}
	if cfg.Tap == "" {
		log.Info("tap is off")
		return w, nil
	}
	var err error
	if w.tapAt, err = new(net.ListenConfig).Listen(ctx, "tcp", cfg.ControlListen.String()); err != nil {
		return nil, fmt.Errorf("listening for taps on %s: %w", cfg.ControlListen, err)
	}
	w.tap = tap.New()
	w.server = &tap.Server{Registry: w.tap, Identity: local, Client: cfg.Tap, Log: log}
	log.Info("tap listening", "addr", w.tapAt.Addr().String(), "client", cfg.Tap)
	return w, nil
}

func (w *watchers) trace(ctx context.Context, cfg config.Trace, ttl config.DNS, local *identity.Local, m *tell.Metrics, log *slog.Logger) error {
	dialer := control.Dialer{TTL: ttl, Told: control.Told{Client: "trace_collector", Metrics: m}}
	conn, err := dialer.Dial(ctx, cfg.Svc, local)
	if err != nil {
		return err
	}
	w.close = func() { _ = conn.Close() }
	var file map[string]string
	if cfg.File != "" {
		b, err := os.ReadFile(cfg.File)
		if err != nil {
			log.Warn("the attributes of traces cannot be read", "error", err)
		}
		file = config.ParseAttributes(string(b))
	}
	streams, requests, spans := m.Counter(tell.SpanStreams, nil), m.Counter(tell.SpanRequests, nil), m.Counter(tell.SpanExports, nil)
	dropped := m.Counter(tell.SpansDropped, nil)
	w.spans = span.New(conn, span.Resource(os.Getpid(), time.Now(), cfg.Hostname, cfg.Service, file, cfg.Attributes), span.Told{
		Dropped: dropped.Inc, Begun: streams.Inc, Taken: func(n int) { requests.Inc(); spans.Add(uint64(n)) },
	}, log)
	log.Info("traces are reported", "collector", cfg.Svc.Addr, "service", cfg.Service)
	return nil
}

// start runs those that there are. The access log goes on to the very end.
func (w *watchers) start(part func(string, func(context.Context) error)) {
	if w.access != nil {
		part("access log", w.access.Run)
	}
	if w.spans != nil {
		part("traces", w.spans.Run)
	}
	if w.server != nil {
		part("tap", func(ctx context.Context) error { return w.server.Serve(ctx, w.tapAt) })
	}
}
