// Command weft-proxy is the sidecar: it carries everything that its pod sends
// and receives, with mutual TLS, by what the control plane says. It is
// configured by the variables that the injector writes (LINKERD2_PROXY_…).
//
// It exits 0 after a drain, 1 on failure and 64 when its environment is wrong.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"syscall"

	"github.com/weftmesh/weft/proxy/internal/admin"
	"github.com/weftmesh/weft/proxy/internal/config"
	"github.com/weftmesh/weft/proxy/internal/identity"
	"github.com/weftmesh/weft/services/kit/build"
	"github.com/weftmesh/weft/services/kit/limits"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	limits.Apply()
	n, odd := cores(os.Environ(), runtime.GOMAXPROCS(0))
	for _, text := range odd {
		fmt.Fprintln(os.Stderr, text)
	}
	runtime.GOMAXPROCS(n)
	os.Exit(run(ctx, os.Environ(), os.Args[1:], os.Stdout, os.Stderr))
}

// run is the whole process: it returns the exit code.
func run(ctx context.Context, environ, args []string, stdout, stderr io.Writer) int {
	if len(args) > 0 {
		if strings.TrimLeft(args[0], "-") == "version" {
			fmt.Fprintln(stdout, build.Version())
			return 0
		}
		fmt.Fprintf(stderr, "weft-proxy takes no arguments but -version; it reads %s… from its environment\n", config.Prefix)
		return config.ExitCode
	}
	cfg, err := config.Parse(environ)
	if err != nil {
		if bad, ok := errors.AsType[*config.Error](err); ok {
			for _, problem := range bad.Problems {
				fmt.Fprintln(stderr, problem)
			}
		}
		return config.ExitCode
	}
	level, err := admin.NewLevel(cfg.Log)
	if err != nil {
		fmt.Fprintf(stderr, "%sLOG: %v\n", config.Prefix, err)
		return config.ExitCode
	}
	logs := admin.NewLogs(handler(stdout, cfg.LogFormat, level))
	log := slog.New(logs)
	for _, text := range cfg.Warnings {
		log.Warn("the environment is odd", "variable", text)
	}
	err = serve(ctx, cfg, outputs{level, logs, stderr}, log)
	switch {
	case errors.Is(err, identity.ErrDocuments): // the environment names them
		fmt.Fprintln(stderr, err)
		return config.ExitCode
	case err != nil:
		log.Error("the proxy has failed", "error", err)
		return 1
	}
	return 0
}

// outputs are what the process says, and where.
type outputs struct {
	level  *admin.Level
	logs   *admin.Logs
	stderr io.Writer // for the access log
}

func handler(w io.Writer, format string, level *admin.Level) slog.Handler {
	if format == "json" {
		return admin.NewJSON(w, level)
	}
	return slog.NewTextHandler(w, &slog.HandlerOptions{Level: level})
}
