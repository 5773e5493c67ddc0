// Package obs is how every process reports on itself: structured logs,
// Prometheus metrics, OpenTelemetry traces and an admin server. Attach it
// first in build, so that it stops last and the end of the process can still
// be watched.
package obs

import (
	"context"
	"log/slog"
	"os"

	"github.com/weftmesh/weft/services/kit/build"
	"github.com/weftmesh/weft/services/kit/conf"
	"github.com/weftmesh/weft/services/kit/run"
)

// Config says how a process reports. It works when empty.
type Config struct {
	Admin     conf.Addr `help:"address of the admin server (/metrics /live /ready /debug/pprof); empty means 127.0.0.1:0"`
	LogLevel  string    `help:"least level that is logged: debug, info, warn or error; empty means info"`
	LogFormat string    `help:"text or json; empty means text"`
}

// defaultAdmin is a free port on loopback; the log says which.
const defaultAdmin = "127.0.0.1:0"

// Check judges the settings.
func (c Config) Check() error {
	if _, err := level(c.LogLevel); err != nil {
		return conf.Bad("LogLevel", "%q is none of debug, info, warn and error", c.LogLevel)
	}
	switch c.LogFormat {
	case "", "text", "json":
		return nil
	}
	return conf.Bad("LogFormat", "%q is neither text nor json", c.LogFormat)
}

// Attach sets the default logger and propagator, and gives s an admin server
// and, if the OTEL_… environment asks for one, an exporter of traces.
func Attach(ctx context.Context, s *run.Service, cfg Config) error {
	logger, err := newLogger(os.Stderr, cfg)
	if err != nil {
		return err
	}
	slog.SetDefault(logger.With("process", s.Name()))
	slog.Info("starting", "version", build.Version(), "commit", build.Commit())
	if l := s.Limits(); l.Memory > 0 || l.Procs > 0 {
		slog.Info("limits taken from the cgroup", "memory_bytes", l.Memory, "procs", l.Procs)
	}
	if err := trace(ctx, s, os.Getenv); err != nil {
		return err
	}
	addr := cfg.Admin.String()
	if addr == "" {
		addr = defaultAdmin
	}
	lis, err := run.Listen(addr)
	if err != nil {
		return err
	}
	slog.Info("admin listening", Addr(lis.Addr().String()))
	s.Part("admin", func(ctx context.Context) error { return serveAdmin(ctx, lis, s) })
	return nil
}
