package accesslog

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func entry() *Entry {
	return &Entry{
		Client: netip.MustParseAddrPort("10.0.0.1:4567"), ID: "web.shop", At: time.Date(2026, 11, 30, 15, 4, 5, 6000, time.UTC),
		Method: "GET", URI: "/books?q=\"x\"", Version: "HTTP/1.1", Host: "books.shop", UserAgent: "curl/8", TraceID: "abc",
		RequestBytes: -1, ResponseBytes: 12, Status: 200, Total: 3 * time.Millisecond, Processing: time.Millisecond,
	}
}

func TestApache(t *testing.T) {
	e := entry()
	const want = `10.0.0.1:4567 web.shop - [2026-11-30T15:04:05.000006Z] "GET /books?q=\"x\" HTTP/1.1" 200` + "\n"
	if diff := cmp.Diff(want, string(Apache(nil, e))); diff != "" {
		t.Error(diff)
	}
	e.ID, e.URI = "", "/a\nb \"\x80"
	const strange = `10.0.0.1:4567 - - [2026-11-30T15:04:05.000006Z] "GET /a\x0ab \"\x80 HTTP/1.1" 200` + "\n"
	if diff := cmp.Diff(strange, string(Apache(nil, e))); diff != "" {
		t.Error(diff)
	}
}

func TestJSON(t *testing.T) {
	var got map[string]any
	if err := json.Unmarshal(JSON(nil, entry()), &got); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"client.addr": "10.0.0.1:4567", "client.id": "web.shop", "host": "books.shop", "method": "GET", "processing_ns": "1000000",
		"request_bytes": "", "response_bytes": "12", "status": 200.0, "timestamp": "2026-11-30T15:04:05.000006Z", "total_ns": "3000000",
		"trace_id": "abc", "uri": `/books?q="x"`, "user_agent": "curl/8", "version": "HTTP/1.1",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestOTel(t *testing.T) {
	var got struct {
		Timestamp, Body, TraceID string
		Attributes               map[string]any
	}
	if err := json.Unmarshal(OTel(nil, entry()), &got); err != nil {
		t.Fatal(err)
	}
	if got.Timestamp != "1796051045000006000" || got.Attributes["http.response.status_code"] != 200.0 || got.Attributes["network.protocol.version"] != "1.1" {
		t.Errorf("%+v", got)
	}
}

func FuzzLines(f *testing.F) {
	f.Add("GET", "/", "a\"\n\\", "\xff")
	f.Fuzz(func(t *testing.T, method, uri, agent, id string) {
		e := entry()
		e.Method, e.URI, e.UserAgent, e.ID = method, uri, agent, id
		for name, format := range Formats {
			line := format(nil, e)
			if n := bytes.Count(line, []byte("\n")); n != 1 || line[len(line)-1] != '\n' {
				t.Errorf("%s: %q has %d ends", name, line, n)
			}
			if name != "apache" && !json.Valid(line) {
				t.Errorf("%s: %q is no JSON", name, line)
			}
		}
	})
}

// stuck is a writer that waits until it is let go.
type stuck struct {
	started, release chan struct{}
	bytes.Buffer
}

func (s *stuck) Write(p []byte) (int, error) {
	select {
	case s.started <- struct{}{}:
		<-s.release
	default:
	}
	return s.Buffer.Write(p)
}

func TestAWriterThatIsStuckHoldsNobodyUp(t *testing.T) {
	w := &stuck{started: make(chan struct{}), release: make(chan struct{})}
	told := 0
	l := New(w, Apache, func() { told++ })
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- l.Run(ctx) }()
	l.Add(entry())
	<-w.started // it holds one line
	for range room + 10 {
		l.Add(entry())
	}
	if got := l.Dropped(); got != 10 || told != 10 {
		t.Errorf("%d dropped, %d told, want 10", got, told)
	}
	close(w.release)
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if got := strings.Count(w.String(), "\n"); got != room+1 {
		t.Errorf("%d lines, want %d", got, room+1)
	}
	(*Log)(nil).Add(entry())
}

func BenchmarkAdd(b *testing.B) {
	l := New(io.Discard, JSON, nil)
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	go func() { _ = l.Run(ctx) }()
	e := entry()
	b.ReportAllocs()
	for b.Loop() {
		l.Add(e)
	}
}
