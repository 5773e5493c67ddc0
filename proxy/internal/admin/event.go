package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// target is the module that all events are of, as a tracing filter names it.
const target = "linkerd_proxy"

// An event is what is logged, in JSON as Rust's tracing writes it.
type event struct {
	Timestamp string          `json:"timestamp"`
	Level     string          `json:"level"`
	Fields    json.RawMessage `json:"fields"`
	Target    string          `json:"target"`
	Thread    string          `json:"threadId,omitempty"`
}

// after is what With… calls have added to a handler.
type after func(slog.Handler) slog.Handler

func nothing(h slog.Handler) slog.Handler { return h }

func (a after) attrs(attrs []slog.Attr) after {
	return func(h slog.Handler) slog.Handler { return a(h).WithAttrs(attrs) }
}

func (a after) group(name string) after {
	return func(h slog.Handler) slog.Handler { return a(h).WithGroup(name) }
}

// line makes a line of a record, its end included; nil if it cannot be.
func (a after) line(ctx context.Context, r slog.Record, thread string) []byte {
	var fields bytes.Buffer
	h := a(slog.NewJSONHandler(&fields, &slog.HandlerOptions{Level: slog.Level(-100), ReplaceAttr: inner}))
	if h.Handle(ctx, r) != nil {
		return nil
	}
	b, err := json.Marshal(event{r.Time.UTC().Format(time.RFC3339Nano), levelName(r.Level), bytes.TrimSpace(fields.Bytes()), target, thread})
	if err != nil {
		return nil
	}
	return append(b, '\n')
}

// inner leaves out what stands beside the fields.
func inner(groups []string, a slog.Attr) slog.Attr {
	if len(groups) > 0 {
		return a
	}
	switch a.Key {
	case slog.TimeKey, slog.LevelKey:
		return slog.Attr{}
	case slog.MessageKey:
		a.Key = "message"
	}
	return a
}

func levelName(l slog.Level) string {
	if l < slog.LevelDebug {
		return "TRACE"
	}
	return l.String()
}

// JSON is a slog.Handler that writes an object a line, in the shape of Linkerd's
// logs (spec/proxy.md §14).
type JSON struct {
	to    *shared
	level slog.Leveler
	rest  after
}

type shared struct {
	mu sync.Mutex
	io.Writer
}

// NewJSON writes to w what is of level, or above.
func NewJSON(w io.Writer, level slog.Leveler) *JSON {
	return &JSON{&shared{Writer: w}, level, nothing}
}

// Enabled is slog.Handler's.
func (j *JSON) Enabled(_ context.Context, level slog.Level) bool { return level >= j.level.Level() }

// Handle is slog.Handler's.
func (j *JSON) Handle(ctx context.Context, r slog.Record) error {
	line := j.rest.line(ctx, r, "ThreadId("+strconv.Itoa(syscall.Gettid())+")")
	j.to.mu.Lock()
	defer j.to.mu.Unlock()
	_, err := j.to.Write(line)
	return err
}

// WithAttrs is slog.Handler's.
func (j *JSON) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &JSON{j.to, j.level, j.rest.attrs(attrs)}
}

// WithGroup is slog.Handler's.
func (j *JSON) WithGroup(name string) slog.Handler { return &JSON{j.to, j.level, j.rest.group(name)} }
