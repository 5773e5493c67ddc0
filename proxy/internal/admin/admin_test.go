package admin

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

func handler(t *testing.T, ready bool, stop func()) (http.Handler, *Level) {
	t.Helper()
	level, err := NewLevel("warn,linkerd=info")
	if err != nil {
		t.Fatal(err)
	}
	reg := prometheus.NewRegistry()
	reg.MustRegister(prometheus.NewGauge(prometheus.GaugeOpts{Name: "some_gauge", Help: "h"}))
	return New(Config{
		Ready: func() bool { return ready }, Metrics: reg, Level: level, Shutdown: stop,
		Environ: []string{"A=1", "B=x=y", "EMPTY="},
	}), level
}

func TestAnswers(t *testing.T) {
	stopped := 0
	h, _ := handler(t, true, func() { stopped++ })
	unready, _ := handler(t, false, nil)
	silent := New(Config{Metrics: prometheus.NewRegistry()})
	const here, there = "127.0.0.1:1", "10.0.0.1:1"
	tests := []struct {
		name                       string
		h                          http.Handler
		method, path, from, accept string
		status                     int
		body                       string
	}{
		{"live", h, "GET", "/live", there, "", 200, "live\n"},
		{"ready", h, "POST", "/ready", there, "", 200, "ready\n"},
		{"not ready", unready, "GET", "/ready", there, "", 503, "not ready\n"},
		{"metrics", h, "GET", "/metrics", there, "", 200, "some_gauge 0"},
		{"unknown", h, "GET", "/tasks", there, "", 404, ""},
		{"level", h, "GET", "/proxy-log-level", here, "", 200, "warn,linkerd=info"},
		{"level, nothing logged", silent, "GET", "/proxy-log-level", here, "", 404, ""},
		{"level, nothing logged, from elsewhere", silent, "GET", "/proxy-log-level", there, "", 403, "localhost"},
		{"level from a mapped address", h, "GET", "/proxy-log-level", "[::ffff:127.0.0.1]:1", "", 200, "warn"},
		{"level from elsewhere", h, "GET", "/proxy-log-level", there, "", 403, "localhost"},
		{"level, wrong verb", h, "POST", "/proxy-log-level", here, "", 405, ""},
		{"shutdown from elsewhere", h, "POST", "/shutdown", there, "", 403, "Requests are only permitted from localhost."},
		{"shutdown, wrong verb", h, "GET", "/shutdown", here, "", 405, ""},
		{"shutdown", h, "POST", "/shutdown", here, "", 200, "shutdown\n"},
		{"shutdown not enabled", unready, "POST", "/shutdown", here, "", 404, ""},
		{"environment", h, "GET", "/env.json", there, "*/*", 200, `{"A":"1","B":"x=y","EMPTY":""}`},
		{"some of it", h, "GET", "/env.json?A&C", there, "application/json", 200, `{"A":"1","C":null}`},
		{"with values", h, "GET", "/env.json?A=1", there, "", 400, `{"error":"env.json query parameters may not contain key-value pairs","status":400}`},
		{"as something else", h, "GET", "/env.json", there, "text/html", 406, "application/json"},
		{"as anything of applications", h, "GET", "/env.json?C", there, "text/html, application/*;q=0.5", 200, `{"C":null}`},
		{"profiles from elsewhere", h, "GET", "/debug/pprof/", there, "", 403, ""},
	}
	for _, tt := range tests {
		req := httptest.NewRequestWithContext(t.Context(), tt.method, tt.path, nil)
		req.RemoteAddr = tt.from
		if tt.accept != "" {
			req.Header.Set("Accept", tt.accept)
		}
		w := httptest.NewRecorder()
		tt.h.ServeHTTP(w, req)
		if w.Code != tt.status || !strings.Contains(w.Body.String(), tt.body) || tt.body == "" && w.Code == 404 && w.Body.Len() > 0 {
			t.Errorf("%s: %d %q, want %d %q", tt.name, w.Code, w.Body, tt.status, tt.body)
		}
		if strings.HasPrefix(tt.body, "warn,") && w.Body.String() != tt.body {
			t.Errorf("%s: %q, want no more than %q", tt.name, w.Body, tt.body)
		}
		if w.Code == 405 && w.Header().Get("Allow") == "" {
			t.Errorf("%s: no Allow header", tt.name)
		}
	}
	if stopped != 1 {
		t.Errorf("stopped %d times", stopped)
	}
}

func TestSetLevel(t *testing.T) {
	h, level := handler(t, true, nil)
	put := func(body string) int {
		req := httptest.NewRequestWithContext(t.Context(), "PUT", "/proxy-log-level", strings.NewReader(body))
		req.RemoteAddr = "127.0.0.1:1"
		w := httptest.NewRecorder()
		h.ServeHTTP(w, req)
		_, _ = io.Copy(io.Discard, w.Body)
		return w.Code
	}
	if got := put("linkerd=debug"); got != 204 || level.Level() != slog.LevelDebug {
		t.Errorf("%d, %v", got, level.Level())
	}
	for _, bad := range []string{"loud=1,a=b", "linkerd=loud", strings.Repeat("x", maxFilter+1)} {
		if got := put(bad); got != 400 || level.Level() != slog.LevelDebug {
			t.Errorf("%.20q: %d, %v", bad, got, level.Level())
		}
	}
}

func TestFilters(t *testing.T) {
	for filter, want := range map[string]slog.Level{
		"":                  slog.LevelError,
		"info":              slog.LevelInfo,
		"WARN":              slog.LevelWarn,
		"warn,linkerd=info": slog.LevelInfo,
		"warn,linkerd=info,hickory=error,[{headers}]=off,[{request}]=off": slog.LevelInfo,
		"debug,weft=error": slog.LevelError,
		"linkerd=trace":    slog.LevelDebug - 4,
		"off":              off,
		"hickory=debug":    slog.LevelError,
		"linkerd":          slog.LevelDebug - 4,
		"linkerd_app::inbound=debug,linkerd=info": slog.LevelDebug,
		"linkerdx=debug": slog.LevelError,
	} {
		l, err := NewLevel(filter)
		if err != nil || l.Level() != want || l.String() != filter {
			t.Errorf("%q: %v, %v, want %v", filter, l.Level(), err, want)
		}
	}
}

func FuzzFilter(f *testing.F) {
	f.Add("warn,linkerd=info")
	f.Add("[{headers}]=off")
	f.Fuzz(func(t *testing.T, in string) {
		l, err := NewLevel(in)
		if err == nil && (l.Level() < slog.LevelDebug-4 || l.Level() > off) {
			t.Errorf("%q: %v", in, l.Level())
		}
	})
}
