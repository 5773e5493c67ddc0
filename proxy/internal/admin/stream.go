package admin

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
)

const (
	// maxStreams bounds the readers of /logs.json.
	maxStreams = 16
	// streamRoom is how many events may wait for one of them.
	streamRoom = 512
)

// Logs is a slog.Handler that also shows what is logged to the readers of
// /logs.json, each with a filter of its own. Without readers it costs a load.
type Logs struct {
	base slog.Handler
	hub  *hub
	rest after
}

type hub struct {
	lowest  atomic.Int64 // level that any reader wants; off if there is none
	mu      sync.Mutex
	readers map[*reader]struct{}
}

type reader struct {
	level   slog.Level
	events  chan []byte
	dropped atomic.Int64
}

// NewLogs wraps what logs go to.
func NewLogs(base slog.Handler) *Logs {
	h := &hub{readers: map[*reader]struct{}{}}
	h.lowest.Store(int64(off))
	return &Logs{base: base, hub: h, rest: nothing}
}

// Enabled is slog.Handler's.
func (l *Logs) Enabled(ctx context.Context, level slog.Level) bool {
	return l.base.Enabled(ctx, level) || int64(level) >= l.hub.lowest.Load()
}

// Handle is slog.Handler's.
func (l *Logs) Handle(ctx context.Context, r slog.Record) error {
	if int64(r.Level) >= l.hub.lowest.Load() {
		l.show(ctx, r)
	}
	if !l.base.Enabled(ctx, r.Level) {
		return nil
	}
	return l.base.Handle(ctx, r)
}

// WithAttrs is slog.Handler's.
func (l *Logs) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &Logs{l.base.WithAttrs(attrs), l.hub, l.rest.attrs(attrs)}
}

// WithGroup is slog.Handler's.
func (l *Logs) WithGroup(name string) slog.Handler {
	return &Logs{l.base.WithGroup(name), l.hub, l.rest.group(name)}
}

// show gives the event to the readers that want it.
func (l *Logs) show(ctx context.Context, r slog.Record) {
	event := l.rest.line(ctx, r, "")
	if event == nil {
		return
	}
	l.hub.mu.Lock()
	defer l.hub.mu.Unlock()
	for reader := range l.hub.readers {
		if r.Level < reader.level {
			continue
		}
		select {
		case reader.events <- event:
		default:
			reader.dropped.Add(1)
		}
	}
}

func (h *hub) enter(r *reader) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.readers) >= maxStreams {
		return false
	}
	h.readers[r] = struct{}{}
	h.settle()
	return true
}

func (h *hub) leave(r *reader) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.readers, r)
	h.settle()
}

func (h *hub) settle() {
	lowest := off
	for r := range h.readers {
		lowest = min(lowest, r.level)
	}
	h.lowest.Store(int64(lowest))
}

// ServeHTTP streams events, one JSON object a line: GET with the filter as the
// query, QUERY with the filter as the body.
func (l *Logs) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != "QUERY" {
		refuse(w, "GET, QUERY")
		return
	}
	if !takesJSON(w, r) {
		return
	}
	var filter string
	if r.Method == http.MethodGet {
		if r.URL.RawQuery == "" {
			mistake(w, http.StatusBadRequest, "Missing query string for log-streaming filter")
			return
		}
		filter = r.URL.RawQuery
		if plain, err := url.QueryUnescape(filter); err == nil {
			filter = plain
		}
	} else {
		body, err := io.ReadAll(io.LimitReader(r.Body, maxFilter))
		if err != nil {
			mistake(w, http.StatusBadRequest, err.Error())
			return
		}
		filter = strings.TrimSpace(string(body))
	}
	level, err := parseFilter(filter)
	if err != nil {
		mistake(w, http.StatusBadRequest, err.Error())
		return
	}
	reader := &reader{level: level, events: make(chan []byte, streamRoom)}
	if !l.hub.enter(reader) {
		mistake(w, http.StatusServiceUnavailable, "too many streams of logs are open")
		return
	}
	defer l.hub.leave(reader)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	_ = http.NewResponseController(w).Flush()
	reader.stream(r.Context(), w)
}

// stream writes until the client leaves.
func (r *reader) stream(ctx context.Context, w http.ResponseWriter) {
	flush := func() { _ = http.NewResponseController(w).Flush() }
	for {
		select {
		case e := <-r.events:
			if _, err := w.Write(e); err != nil {
				return
			}
		case <-ctx.Done():
			return
		}
		if n := r.dropped.Swap(0); n > 0 {
			b, _ := json.Marshal(map[string]int64{"dropped_events": n})
			if _, err := w.Write(append(b, '\n')); err != nil {
				return
			}
		}
		if len(r.events) == 0 {
			flush()
		}
	}
}
