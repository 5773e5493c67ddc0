package admin

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// logged is a proxy's log with its admin port.
func logged(t *testing.T) (*slog.Logger, *Logs, *httptest.Server, *strings.Builder) {
	t.Helper()
	var out strings.Builder
	logs := NewLogs(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelInfo}))
	level, err := NewLevel("info")
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(New(Config{Ready: func() bool { return true }, Metrics: prometheus.NewRegistry(), Level: level, Logs: logs}))
	t.Cleanup(srv.Close)
	return slog.New(logs), logs, srv, &out
}

type seen struct {
	Timestamp, Level, Target string
	Fields                   map[string]any
	Dropped                  int64 `json:"dropped_events"`
}

// follow opens a stream, and gives a function that reads its next event.
func follow(t *testing.T, method, url, body string) func() seen {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = res.Body.Close() })
	if res.StatusCode != http.StatusOK {
		t.Fatalf("%s %s: %d", method, url, res.StatusCode)
	}
	lines := bufio.NewScanner(res.Body)
	return func() (e seen) {
		t.Helper()
		if !lines.Scan() {
			t.Fatal("the stream has ended", lines.Err())
		}
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			t.Fatalf("%q: %v", lines.Text(), err)
		}
		return e
	}
}

func TestLogStreams(t *testing.T) {
	log, logs, srv, out := logged(t)
	if logs.Enabled(t.Context(), slog.LevelDebug) {
		t.Error("debug is on, though nobody reads it")
	}
	debug := follow(t, http.MethodGet, srv.URL+"/logs.json?warn%2Clinkerd=debug", "")
	warnings := follow(t, "QUERY", srv.URL+"/logs.json", "warn")
	log.With("part", "x").WithGroup("g").Debug("a detail", "n", 1)
	log.Warn("it is \"bad\"", "error", io.EOF)

	first := debug()
	if first.Level != "DEBUG" || first.Fields["message"] != "a detail" || first.Fields["part"] != "x" || first.Target != target {
		t.Errorf("%+v", first)
	}
	if group, _ := first.Fields["g"].(map[string]any); group["n"] != 1.0 {
		t.Errorf("%+v", first)
	}
	if _, err := time.Parse(time.RFC3339Nano, first.Timestamp); err != nil {
		t.Error(err)
	}
	if second := debug(); second.Level != "WARN" || second.Fields["error"] != "EOF" {
		t.Errorf("%+v", second)
	}
	if only := warnings(); only.Fields["message"] != `it is "bad"` {
		t.Errorf("%+v", only)
	}
	if strings.Contains(out.String(), "a detail") || !strings.Contains(out.String(), "bad") {
		t.Errorf("the log has %q", out)
	}
}

func TestLogStreamsThatCannotBe(t *testing.T) {
	_, logs, srv, _ := logged(t)
	for _, tt := range []struct {
		method, path, body string
		status             int
	}{
		{http.MethodGet, "/logs.json?warn=loud", "", 400},
		{"QUERY", "/logs.json", "warn=loud", 400},
		{http.MethodPost, "/logs.json", "", 405},
		{http.MethodGet, "/logs.json", "", 400},
	} {
		req, _ := http.NewRequestWithContext(t.Context(), tt.method, srv.URL+tt.path, strings.NewReader(tt.body))
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(res.Body)
		_ = res.Body.Close()
		if res.StatusCode != tt.status || tt.status == 400 && !json.Valid(body) {
			t.Errorf("%s %s: %d %q, want %d", tt.method, tt.path, res.StatusCode, body, tt.status)
		}
	}
	w := httptest.NewRecorder()
	req := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/logs.json", nil)
	req.RemoteAddr = "10.0.0.1:1"
	local(logs).ServeHTTP(w, req)
	if w.Code != http.StatusForbidden {
		t.Errorf("from elsewhere: %d", w.Code)
	}
}

func TestJSON(t *testing.T) {
	var out strings.Builder
	level := new(slog.LevelVar)
	log := slog.New(NewLogs(NewJSON(&out, level)))
	log.Debug("not this")
	log.With("client", "10.0.0.1:1").WithGroup("g").Warn("it is \"bad\"", "error", io.EOF)
	level.Set(slog.LevelDebug)
	log.Debug("this")
	lines := strings.Split(out.String(), "\n")
	if len(lines) != 3 || lines[2] != "" {
		t.Fatalf("%q", lines)
	}
	var got map[string]any
	if err := json.Unmarshal([]byte(lines[0]), &got); err != nil {
		t.Fatal(err)
	}
	if at, err := time.Parse(time.RFC3339Nano, got["timestamp"].(string)); err != nil || time.Since(at) > time.Minute {
		t.Error(at, err)
	}
	if thread, _ := got["threadId"].(string); !strings.HasPrefix(thread, "ThreadId(") {
		t.Errorf("thread %q", thread)
	}
	delete(got, "timestamp")
	delete(got, "threadId")
	want := map[string]any{"level": "WARN", "target": target, "fields": map[string]any{
		"message": "it is \"bad\"", "client": "10.0.0.1:1", "g": map[string]any{"error": "EOF"},
	}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestSlowReadersLoseEvents(t *testing.T) {
	logs := NewLogs(slog.DiscardHandler)
	r := &reader{level: slog.LevelInfo, events: make(chan []byte, 1)}
	logs.hub.enter(r)
	log := slog.New(logs)
	for range 4 {
		log.Info("x")
	}
	if got := r.dropped.Load(); got != 3 {
		t.Errorf("%d dropped, want 3", got)
	}
	logs.hub.leave(r)
	if logs.Enabled(t.Context(), slog.LevelError) {
		t.Error("on without a reader")
	}
}

func TestMetricsAreCompressedIfAsked(t *testing.T) {
	h, _ := handler(t, true, nil)
	for accept, want := range map[string]bool{"gzip": true, "deflate, gzip;q=0.5": true, "*": true, "gzip;q=0": false, "br": false, "": false} {
		req := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil)
		if accept != "" {
			req.Header.Set("Accept-Encoding", accept)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, req)
		body := io.Reader(w.Body)
		if got := w.Header().Get("Content-Encoding") == "gzip"; got != want {
			t.Errorf("%q: compressed: %v, want %v", accept, got, want)
		}
		if want {
			z, err := gzip.NewReader(body)
			if err != nil {
				t.Fatal(err)
			}
			body = z
		}
		b, err := io.ReadAll(body)
		if err != nil || !strings.HasSuffix(string(b), "# EOF\n") || !strings.Contains(string(b), "some_gauge 0") {
			t.Errorf("%q: %q, %v", accept, b, err)
		}
	}
}
