package obs

import (
	"context"
	"fmt"
	"io"
	"log/slog"

	oteltrace "go.opentelemetry.io/otel/trace"
)

// level reads a log level's name; "" is info.
func level(name string) (slog.Level, error) {
	var l slog.Level
	if name == "" {
		return slog.LevelInfo, nil
	}
	if err := l.UnmarshalText([]byte(name)); err != nil {
		return l, fmt.Errorf("reading log level: %w", err)
	}
	return l, nil
}

// newLogger makes the process's logger.
func newLogger(w io.Writer, cfg Config) (*slog.Logger, error) {
	least, err := level(cfg.LogLevel)
	if err != nil {
		return nil, err
	}
	opts := &slog.HandlerOptions{Level: least}
	var h slog.Handler = slog.NewTextHandler(w, opts)
	if cfg.LogFormat == "json" {
		h = slog.NewJSONHandler(w, opts)
	}
	return slog.New(&traced{Handler: h}), nil
}

// traced adds the ids of the context's span to a record, so that logs and
// traces can be read together.
type traced struct{ slog.Handler }

func (t *traced) Handle(ctx context.Context, r slog.Record) error {
	if sc := oteltrace.SpanContextFromContext(ctx); sc.IsValid() {
		r.AddAttrs(slog.String("trace_id", sc.TraceID().String()), slog.String("span_id", sc.SpanID().String()))
	}
	return t.Handler.Handle(ctx, r)
}

func (t *traced) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &traced{Handler: t.Handler.WithAttrs(attrs)}
}

func (t *traced) WithGroup(name string) slog.Handler {
	return &traced{Handler: t.Handler.WithGroup(name)}
}
