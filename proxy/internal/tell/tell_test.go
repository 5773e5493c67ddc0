package tell

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
)

// clock is a hand-wound one.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) Now() time.Time { c.mu.Lock(); defer c.mu.Unlock(); return c.now }
func (c *clock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// text is what /metrics shows, without comments.
func text(t *testing.T, m *Metrics) []string {
	t.Helper()
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(m)
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, f := range families {
		if _, err := expfmt.MetricFamilyToText(&b, f); err != nil {
			t.Fatal(err)
		}
	}
	var lines []string
	for line := range strings.Lines(b.String()) {
		if !strings.HasPrefix(line, "#") {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	return lines
}

func TestHTTPSpeaksLinkerd(t *testing.T) {
	c := &clock{now: time.Unix(0, 0)}
	m := New(Config{Now: c.Now})
	labels := Labels{{"direction", "outbound"}, {"authority", "web:80"}}.
		And(Target(netip.MustParseAddrPort("10.0.0.1:8080"))).And(ServerTLS("web.shop")).And(Dst(map[string]string{"service": "web", "k8s.io/x": "y"}))
	h := m.HTTP(labels)
	h.Start().End(End{Status: 200, GRPC: "0", Success: true}, 7*time.Millisecond)
	h.Start().End(End{Error: "IO"}, time.Minute)
	const common = `authority="web:80",%sdirection="outbound",dst_k8s_io_x="y",dst_service="web",%sserver_id="web.shop",%starget_addr="10.0.0.1:8080",target_ip="10.0.0.1",target_port="8080",tls="true"`
	lines := text(t, m)
	for _, want := range []string{
		"request_total{" + fmt.Sprintf(common, "", "", "") + "} 2",
		"response_total{" + fmt.Sprintf(common, `classification="success",`, `grpc_status="0",`, `status_code="200",`) + "} 1",
		"response_total{" + fmt.Sprintf(common, `classification="failure",`, `error="IO",`, ``) + "} 1",
		"response_latency_ms_count{" + fmt.Sprintf(common, "", "", `status_code="200",`) + "} 1",
		"response_latency_ms_sum{" + fmt.Sprintf(common, "", "", `status_code="200",`) + "} 7",
		"response_latency_ms_bucket{" + fmt.Sprintf(common, "", "", `status_code="200",`) + `,le="5"} 0`,
		"response_latency_ms_bucket{" + fmt.Sprintf(common, "", "", `status_code="200",`) + `,le="10"} 1`,
		"response_latency_ms_bucket{" + fmt.Sprintf(common, "", "", ``) + `,le="50000"} 0`,
		"response_latency_ms_bucket{" + fmt.Sprintf(common, "", "", ``) + `,le="+Inf"} 1`,
	} {
		if !slices.Contains(lines, want) {
			t.Errorf("missing %s", want)
		}
	}
	if t.Failed() {
		t.Log(strings.Join(lines, "\n"))
	}
}

func TestTCP(t *testing.T) {
	m := New(Config{})
	tcp := m.TCP(Labels{{"direction", "inbound"}, {"peer", "src"}}.And(NoTLS(NoTLSFromPeer)))
	client, server := net.Pipe()
	conn := tcp.Wrap(server)
	go func() {
		_, _ = io.WriteString(client, "hello")
		_, _ = io.Copy(io.Discard, client)
	}()
	buf := make([]byte, 5)
	if _, err := io.ReadFull(conn, buf); err != nil {
		t.Fatal(err)
	}
	_, _ = conn.Write([]byte("hi"))
	const l = `{direction="inbound",no_tls_reason="no_tls_from_remote",peer="src",tls="no_identity"}`
	if got := text(t, m); !slices.Contains(got, "tcp_open_connections"+l+" 1") {
		t.Errorf("got %q", got)
	}
	_ = conn.Close()
	_ = conn.Close() // counts once
	want := []string{
		`tcp_close_total{direction="inbound",errno="",no_tls_reason="no_tls_from_remote",peer="src",tls="no_identity"} 1`,
		"tcp_open_connections" + l + " 0", "tcp_open_total" + l + " 1", "tcp_read_bytes_total" + l + " 5", "tcp_write_bytes_total" + l + " 2",
	}
	if diff := cmp.Diff(want, text(t, m)); diff != "" {
		t.Error(diff)
	}
}

func TestErrno(t *testing.T) {
	for _, tt := range []struct {
		err  error
		want string
	}{
		{nil, ""},
		{io.EOF, ""},
		{&net.OpError{Op: "read", Err: syscall.ECONNRESET}, "ECONNRESET"},
		{fmt.Errorf("x: %w", syscall.EPIPE), "EPIPE"},
		{syscall.Errno(250), "UNKNOWN"},
		{errors.New("x"), ""},
	} {
		if got := Errno(tt.err); got != tt.want {
			t.Errorf("Errno(%v) = %q, want %q", tt.err, got, tt.want)
		}
	}
}

func TestCardinalityIsCapped(t *testing.T) {
	m := New(Config{MaxSeries: 3})
	for i := range 10 {
		m.Counter(RequestTotal, Labels{{"authority", fmt.Sprint(i)}}).Inc()
	}
	want := []string{
		`request_total{authority="0"} 1`, `request_total{authority="1"} 1`, `request_total{authority="2"} 1`, `request_total{overflow="true"} 7`,
	}
	if diff := cmp.Diff(want, text(t, m)); diff != "" {
		t.Error(diff)
	}
}

func TestIdleSeriesAreDroppedAndReturn(t *testing.T) {
	c := &clock{now: time.Unix(0, 0)}
	m := New(Config{RetainIdle: time.Minute, Now: c.Now})
	idle, busy := m.Counter(RequestTotal, Labels{{"a", "idle"}}), m.Counter(RequestTotal, Labels{{"a", "busy"}})
	open := m.Gauge(TCPOpen, Labels{{"a", "idle"}})
	open.Add(1)
	idle.Add(5)
	for range 4 {
		busy.Inc()
		c.advance(30 * time.Second)
		text(t, m)
	}
	if got, want := text(t, m), []string{`request_total{a="busy"} 4`, `tcp_open_connections{a="idle"} 1`}; !cmp.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	idle.Inc() // a handle outlives its series
	if got := text(t, m); !slices.Contains(got, `request_total{a="idle"} 6`) {
		t.Errorf("got %q", got)
	}
	// Another handle may have taken the key meanwhile: both then count there.
	for range 4 {
		c.advance(30 * time.Second)
		text(t, m)
	}
	other := m.Counter(RequestTotal, Labels{{"a", "idle"}})
	other.Inc()
	idle.Inc()
	if got := text(t, m); !slices.Contains(got, `request_total{a="idle"} 2`) {
		t.Errorf("got %q", got)
	}
}

func TestLabelsAreMadeSafe(t *testing.T) {
	m := New(Config{})
	m.Counter(RequestTotal, Labels{{"b", "1"}, {"a", strings.Repeat("x", 300)}, {"b", "2"}, {"c", "\xff"}}).Inc()
	want := []string{`request_total{a="` + strings.Repeat("x", 253) + `",b="2",c="` + "\uFFFD" + `"} 1`}
	if diff := cmp.Diff(want, text(t, m)); diff != "" {
		t.Error(diff)
	}
}

func TestPeersCannotMakeUpStatuses(t *testing.T) {
	m := New(Config{})
	h := m.HTTP(nil)
	for i := range 1000 {
		h.Start().End(End{Status: 200, GRPC: fmt.Sprint("made up ", i)}, 0)
	}
	if got := text(t, m); !slices.Contains(got, `response_total{classification="failure",grpc_status="2",status_code="200"} 1000`) {
		t.Errorf("%d lines", len(got))
	}
}

func TestManyAtOnce(t *testing.T) {
	c := &clock{now: time.Unix(0, 0)}
	m := New(Config{RetainIdle: time.Second, Now: c.Now, MaxSeries: 50})
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for i := range 500 {
				h := m.HTTP(Labels{{"a", fmt.Sprint((w + i) % 20)}})
				h.Start().End(End{Status: 200 + i%3, Success: true}, 0)
			}
		})
	}
	wg.Go(func() {
		for range 50 {
			text(t, m)
			c.advance(700 * time.Millisecond)
		}
	})
	wg.Wait()
}

func BenchmarkCall(b *testing.B) {
	h := New(Config{}).HTTP(Labels{{"a", "b"}})
	b.ReportAllocs()
	for b.Loop() {
		h.Start().End(End{Status: 200, Success: true}, time.Millisecond)
	}
}

func ExampleMetrics_HTTP() {
	m := New(Config{})
	h := m.HTTP(Labels{{"direction", "inbound"}}.And(ClientTLS("web.shop"))) // bound once
	call := h.Start()                                                        // per request
	call.End(End{Status: 200, Success: true}, 7*time.Millisecond)
	// Output:
}
