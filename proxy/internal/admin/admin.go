// Package admin answers the operator: probes, metrics, the log level, the
// environment and the end of the process (spec/proxy.md §3). It is a handler;
// who may reach it is decided by whoever serves it.
package admin

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/pprof"
	"net/netip"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
)

// maxFilter bounds the body of PUT /proxy-log-level.
const maxFilter = 8 << 10

// Config is what the answers are made of.
type Config struct {
	Ready    func() bool
	Metrics  prometheus.Gatherer
	Level    *Level       // nil means that nothing is logged, ever
	Detail   Setting      // how much /metrics tells; nil means that it cannot be changed
	Logs     http.Handler // of /logs.json; nil means that it does not exist
	Environ  []string     // "NAME=value"
	Shutdown func()       // nil means that the endpoint does not exist
}

// New returns the handler.
func New(cfg Config) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/live", func(w http.ResponseWriter, _ *http.Request) { text(w, http.StatusOK, "live\n") })
	mux.HandleFunc("/ready", func(w http.ResponseWriter, _ *http.Request) {
		if !cfg.Ready() {
			w.Header()["Content-Type"] = nil
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = io.WriteString(w, "not ready\n")
			return
		}
		text(w, http.StatusOK, "ready\n")
	})
	mux.HandleFunc("/metrics", metrics(cfg.Metrics))
	levels := http.Handler(http.HandlerFunc(nowhere))
	if cfg.Level != nil {
		levels = setting(cfg.Level, "")
	}
	mux.Handle("/proxy-log-level", local(levels))
	if cfg.Detail != nil {
		mux.Handle("/proxy-metrics-level", local(setting(cfg.Detail, "\n")))
	}
	if cfg.Logs != nil {
		mux.Handle("/logs.json", local(cfg.Logs))
	}
	mux.HandleFunc("/env.json", environ(cfg.Environ))
	if cfg.Shutdown != nil {
		mux.Handle("/shutdown", local(shutdown(cfg.Shutdown)))
	}
	mux.Handle("/debug/pprof/", local(http.HandlerFunc(pprof.Index)))
	mux.Handle("/debug/pprof/profile", local(http.HandlerFunc(pprof.Profile)))
	mux.Handle("/debug/pprof/profile.pb.gz", local(http.HandlerFunc(pprof.Profile)))
	mux.Handle("/debug/pprof/trace", local(http.HandlerFunc(pprof.Trace)))
	mux.HandleFunc("/", nowhere)
	return mux
}

// local lets only clients on this host pass.
func local(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		peer, err := netip.ParseAddrPort(r.RemoteAddr)
		if err != nil || !peer.Addr().Unmap().IsLoopback() {
			text(w, http.StatusForbidden, "Requests are only permitted from localhost.")
			return
		}
		next.ServeHTTP(w, r)
	})
}

// A Setting can be read and changed while the proxy runs.
type Setting interface {
	String() string
	Set(string) error
}

// setting answers with the setting, and end.
func setting(l Setting, end string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.Method {
		case http.MethodGet:
			text(w, http.StatusOK, l.String()+end)
		case http.MethodPut:
			body, err := io.ReadAll(io.LimitReader(r.Body, maxFilter+1))
			if err == nil && len(body) > maxFilter {
				err = errors.New("the filter is too long")
			}
			if err == nil {
				err = l.Set(strings.TrimSpace(string(body)))
			}
			if err != nil {
				text(w, http.StatusBadRequest, err.Error()+"\n")
				return
			}
			w.WriteHeader(http.StatusNoContent)
		default:
			refuse(w, "GET, PUT")
		}
	})
}

func shutdown(stop func()) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			refuse(w, "POST")
			return
		}
		stop()
		text(w, http.StatusOK, "shutdown\n")
	})
}

// environ shows all variables, or those whose names are the query: ?A&B.
func environ(env []string) http.HandlerFunc {
	all := make(map[string]*string, len(env))
	for _, kv := range env {
		if name, value, ok := strings.Cut(kv, "="); ok && name != "" {
			all[name] = &value
		}
	}
	return func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method != http.MethodGet:
			refuse(w, "GET")
		case !takesJSON(w, r):
		case strings.Contains(r.URL.RawQuery, "="):
			mistake(w, http.StatusBadRequest, "env.json query parameters may not contain key-value pairs")
		case r.URL.RawQuery == "":
			object(w, http.StatusOK, all)
		default:
			some := make(map[string]*string)
			for name := range strings.SplitSeq(r.URL.RawQuery, "&") {
				if name != "" {
					some[name] = all[name]
				}
			}
			object(w, http.StatusOK, some)
		}
	}
}

// takesJSON refuses who cannot read JSON.
func takesJSON(w http.ResponseWriter, r *http.Request) bool {
	lines := r.Header.Values("Accept")
	ok := len(lines) == 0
	for _, line := range lines {
		ok = ok || strings.Contains(line, "application/json") || strings.Contains(line, "application/*") || strings.Contains(line, "*/*")
	}
	if !ok {
		text(w, http.StatusNotAcceptable, "application/json")
	}
	return ok
}

func nowhere(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotFound) }

func text(w http.ResponseWriter, status int, body string) {
	w.Header().Set("Content-Type", "text/plain")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, body)
}

func object(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}

// mistake says in JSON what is wrong.
func mistake(w http.ResponseWriter, status int, what string) {
	object(w, status, struct {
		Error  string `json:"error"`
		Status int    `json:"status"`
	}{what, status})
}

func refuse(w http.ResponseWriter, allow string) {
	w.Header().Set("Allow", allow)
	w.WriteHeader(http.StatusMethodNotAllowed)
}
