package obs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/net/netutil"

	"github.com/weftmesh/weft/services/kit/run"
)

// Bounds on the admin server: it must answer a few scrapers and probes, and
// never cost the process more than that.
const (
	adminConns    = 64
	adminScrapes  = 4 // at once; each encodes every metric
	adminHeaders  = 16 << 10
	adminTimeout  = 10 * time.Second
	adminIdle     = 2 * time.Minute
	adminDraining = time.Second
)

// serveAdmin answers on lis until ctx is done.
func serveAdmin(ctx context.Context, lis net.Listener, s *run.Service) error {
	srv := &http.Server{
		Handler:           adminHandler(s),
		ReadHeaderTimeout: adminTimeout,
		IdleTimeout:       adminIdle,
		MaxHeaderBytes:    adminHeaders,
		ErrorLog:          slog.NewLogLogger(slog.Default().Handler(), slog.LevelDebug),
		BaseContext:       func(net.Listener) context.Context { return ctx },
	}
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		<-ctx.Done()
		ending, cancel := run.Ending(ctx, adminDraining)
		defer cancel()
		if err := srv.Shutdown(ending); err != nil {
			_ = srv.Close() // a scraper that does not let go must not hold the process
		}
	}()
	err := srv.Serve(netutil.LimitListener(lis, adminConns))
	if !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving admin: %w", err)
	}
	<-stopped
	return nil
}

// adminHandler has the pages of the admin server.
func adminHandler(s *run.Service) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.InstrumentMetricHandler(s.Metrics(),
		promhttp.HandlerFor(s.Metrics(), promhttp.HandlerOpts{
			Registry:            s.Metrics(),
			MaxRequestsInFlight: adminScrapes,
			ErrorHandling:       promhttp.ContinueOnError,
			ErrorLog:            slog.NewLogLogger(slog.Default().Handler(), slog.LevelWarn),
		})))
	mux.HandleFunc("GET /live", func(w http.ResponseWriter, _ *http.Request) { text(w, http.StatusOK, "live") })
	mux.HandleFunc("GET /ready", func(w http.ResponseWriter, _ *http.Request) { ready(w, s.NotReady()) })
	mux.Handle("GET /debug/pprof/", local(pprof.Index))
	mux.Handle("GET /debug/pprof/cmdline", local(pprof.Cmdline))
	mux.Handle("GET /debug/pprof/profile", local(pprof.Profile))
	mux.Handle("GET /debug/pprof/symbol", local(pprof.Symbol))
	mux.Handle("GET /debug/pprof/trace", local(pprof.Trace))
	return mux
}

// ready answers a readiness probe: 200, or 503 and a line for each thing that
// is not ready.
func ready(w http.ResponseWriter, reasons []run.Unready) {
	if len(reasons) == 0 {
		text(w, http.StatusOK, "ready")
		return
	}
	lines := make([]string, len(reasons))
	for i, r := range reasons {
		lines[i] = fmt.Sprintf("%s: %s", r.Name, strings.ReplaceAll(r.Err.Error(), "\n", " "))
	}
	text(w, http.StatusServiceUnavailable, "not ready\n"+strings.Join(lines, "\n"))
}

func text(w http.ResponseWriter, code int, body string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(code)
	_, _ = fmt.Fprintln(w, body) // the other end may have gone; nothing to do about it
}

// local lets only this machine's processes (or, in a pod, kubectl port-forward)
// see a profile: in Kubernetes the admin server is open to the pod network, and
// profiles cost CPU and show memory.
func local(h http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host, _, err := net.SplitHostPort(r.RemoteAddr)
		if ip := net.ParseIP(host); err != nil || ip == nil || !ip.IsLoopback() {
			text(w, http.StatusForbidden, "profiles are shown to loopback only; use kubectl port-forward")
			return
		}
		h(w, r)
	})
}
