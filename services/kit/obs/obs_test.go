package obs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	oteltrace "go.opentelemetry.io/otel/trace"

	"github.com/weftmesh/weft/services/kit/conf"
	"github.com/weftmesh/weft/services/kit/run"
)

func TestConfigCheck(t *testing.T) {
	tests := []struct {
		name string
		cfg  Config
		want string
	}{
		{name: "empty", cfg: Config{}},
		{name: "all set", cfg: Config{Admin: ":1", LogLevel: "debug", LogFormat: "json"}},
		{name: "upper case level", cfg: Config{LogLevel: "WARN"}},
		{name: "level", cfg: Config{LogLevel: "loud"}, want: `"loud" is none of debug, info, warn and error`},
		{name: "format", cfg: Config{LogFormat: "xml"}, want: `"xml" is neither text nor json`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := ""
			if err := tt.cfg.Check(); err != nil {
				got = err.Error()
			}
			if got != tt.want {
				t.Errorf("Check() = %q, want %q", got, tt.want)
			}
		})
	}
}

func TestLoggerAddsTheTrace(t *testing.T) {
	var b bytes.Buffer
	log, err := newLogger(&b, Config{LogLevel: "debug"})
	if err != nil {
		t.Fatal(err)
	}
	ctx := oteltrace.ContextWithSpanContext(t.Context(), oteltrace.NewSpanContext(oteltrace.SpanContextConfig{
		TraceID: oteltrace.TraceID{1}, SpanID: oteltrace.SpanID{2},
	}))
	log.With("process", "x").DebugContext(ctx, "service changed", Service("a/b"), Error(nil), Error(errors.New("e")))
	log.WithGroup("g").Info("plain", Count(1))
	got := b.String()
	for _, want := range []string{
		`level=DEBUG msg="service changed" process=x service=a/b error=e trace_id=01000000000000000000000000000000 span_id=0200000000000000`,
		`level=INFO msg=plain g.count=1` + "\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("log = %s\nwant it to hold %s", got, want)
		}
	}
}

func TestWantsTraces(t *testing.T) {
	const endpoint = "OTEL_EXPORTER_OTLP_ENDPOINT=http://c:4317"
	tests := []struct {
		name    string
		environ []string
		want    bool
		wrong   string // the variable to blame
	}{
		{name: "nothing set"},
		{name: "endpoint", environ: []string{endpoint}, want: true},
		{name: "endpoint for traces", environ: []string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=http://c:4317"}, want: true},
		{name: "exporter", environ: []string{"OTEL_TRACES_EXPORTER=otlp"}, want: true},
		{name: "none wins over endpoint", environ: []string{endpoint, "OTEL_TRACES_EXPORTER=none"}},
		{name: "disabled wins over all", environ: []string{endpoint, "OTEL_TRACES_EXPORTER=zipkin", "OTEL_SDK_DISABLED=TRUE"}},
		{name: "other exporter", environ: []string{"OTEL_TRACES_EXPORTER=zipkin"}, wrong: "OTEL_TRACES_EXPORTER"},
		{name: "grpc", environ: []string{endpoint, "OTEL_EXPORTER_OTLP_PROTOCOL=grpc"}, want: true},
		{name: "http", environ: []string{endpoint, "OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf"}, wrong: "OTEL_EXPORTER_OTLP_PROTOCOL"},
		{
			name:    "traces' own protocol wins",
			environ: []string{endpoint, "OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL=grpc"}, want: true,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := wantsTraces(func(name string) string {
				for _, pair := range tt.environ {
					if n, v, _ := strings.Cut(pair, "="); n == name {
						return v
					}
				}
				return ""
			})
			if got != tt.want {
				t.Errorf("wantsTraces() = %t, want %t", got, tt.want)
			}
			var wrong *conf.Error
			if tt.wrong == "" {
				if err != nil {
					t.Errorf("wantsTraces() = %v", err)
				}
			} else if !errors.As(err, &wrong) || wrong.Problems[0].Env != tt.wrong {
				t.Errorf("wantsTraces() = %v, want %s blamed", err, tt.wrong)
			}
		})
	}
}

func TestReadyPage(t *testing.T) {
	tests := []struct {
		name    string
		reasons []run.Unready
		code    int
		body    string
	}{
		{name: "ready", code: 200, body: "ready\n"},
		{
			name: "two reasons", code: 503,
			reasons: []run.Unready{{Name: "bus", Err: errors.New("no server\nanswers")}, {Name: "tables", Err: errors.New("no snapshot")}},
			body:    "not ready\nbus: no server answers\ntables: no snapshot\n",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := httptest.NewRecorder()
			ready(w, tt.reasons)
			if w.Code != tt.code {
				t.Errorf("code = %d, want %d", w.Code, tt.code)
			}
			if diff := cmp.Diff(tt.body, w.Body.String()); diff != "" {
				t.Errorf("body (-want +got):\n%s", diff)
			}
		})
	}
}

func TestProfilesAreForLoopback(t *testing.T) {
	page := local(func(w http.ResponseWriter, _ *http.Request) { text(w, http.StatusOK, "profile") })
	for peer, want := range map[string]int{
		"127.0.0.1:1234": 200, "127.1.2.3:1": 200, "[::1]:1234": 200,
		"10.0.0.1:1234": 403, "[fd00::1]:1": 403, "": 403, "@": 403,
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/debug/pprof/", nil)
		r.RemoteAddr = peer
		w := httptest.NewRecorder()
		page.ServeHTTP(w, r)
		if w.Code != want {
			t.Errorf("peer %q got %d, want %d", peer, w.Code, want)
		}
	}
}

func ExampleService() {
	log := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		},
	}))
	log.Info("service changed", Service("emojivoto/web"), Seq(42))
	// Output: level=INFO msg="service changed" service=emojivoto/web seq=42
}

func ExampleAttach() {
	build := func(ctx context.Context, s *run.Service) error {
		cfg, err := conf.Load(struct{ Obs Config }{})
		if err != nil {
			return err
		}
		return Attach(ctx, s, cfg.Obs)
	}
	fmt.Printf("run.Main(%q, %T)\n", "destination", build)
	// Output: run.Main("destination", func(context.Context, *run.Service) error)
}
