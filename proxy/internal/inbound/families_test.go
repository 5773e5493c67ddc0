package inbound

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	pb "github.com/linkerd/linkerd2-proxy-api/go/inbound"

	"github.com/weftmesh/weft/proxy/internal/config"
)

// TestRequestMeters are the inbound families of spec/proxy.md §15.3. Which of them a
// request counts in is for the kind of the policy's routes to say.
func TestRequestMeters(t *testing.T) {
	grpcServer := detectServer(onlyIdentity(alice))
	grpcServer.Protocol = &pb.ProxyProtocol{Kind: &pb.ProxyProtocol_Grpc_{Grpc: &pb.ProxyProtocol_Grpc{}}}
	for _, tt := range []struct {
		name, kind, status string
		server             *pb.Server
		grpc               bool
	}{
		{"HTTP", "http", "200", detectServer(onlyIdentity(alice)), false},
		{"gRPC by routes of HTTP", "http", "200", detectServer(onlyIdentity(alice)), true},
		{"gRPC", "grpc", "5", grpcServer, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			at := app(t, answers)
			w := newWorld(t).redirectTo(at).run()
			w.allow(at.Port(), tt.server)
			friend := w.ca.Local(t, alice)
			c := client(t, true, func() (net.Conn, error) { return w.tls(friend) })
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://web/books", strings.NewReader(strings.Repeat("x", 2000)))
			if err != nil {
				t.Fatal(err)
			}
			if tt.grpc {
				req.Header.Set("Content-Type", "application/grpc")
				req.URL.Path = "/grpc"
			}
			res, err := c.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			_ = res.Body.Close()
			labels := map[string]string{
				"parent_group": "policy.linkerd.io", "parent_kind": "server", "parent_name": "web", "parent_port": portText(at.Port()),
				"route_group": "", "route_kind": "default", "route_name": "default",
			}
			prefix := "inbound_" + tt.kind + "_"
			eventually(t, "the end of the request", func() bool { return w.seriesOf(prefix+"request_duration_seconds", labels) == 1 })
			for _, name := range []string{"requests_total", "response_duration_seconds", "request_frame_size_bytes"} {
				if got := w.seriesOf(prefix+name, labels); got < 1 {
					t.Errorf("%s%s = %v", prefix, name, got)
				}
			}
			if !tt.grpc && w.seriesOf(prefix+"response_frame_size_bytes", labels) < 1 {
				t.Error("no pieces of the response")
			}
			labels["status"] = tt.status
			if got := w.seriesOf(prefix+"statuses_total", labels); got != 1 {
				t.Errorf("%sstatuses_total = %v", prefix, got)
			}
		})
	}
}

// TestClassesOfGRPC: what says no status is a success of its own, and what is the
// client's mistake is none of the server's.
func TestClassesOfGRPC(t *testing.T) {
	at := app(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/grpc")
		if code := r.URL.Query().Get("code"); code != "" {
			w.Header().Set(http.TrailerPrefix+"Grpc-Status", code)
		}
		w.WriteHeader(http.StatusOK)
	}))
	w := newWorld(t).redirectTo(at).run()
	w.allow(at.Port(), detectServer(onlyIdentity(alice)))
	friend := w.ca.Local(t, alice)
	c := client(t, true, func() (net.Conn, error) { return w.tls(friend) })
	for code, class := range map[string]string{"": "success", "0": "success", "5": "success", "7": "failure", "13": "failure"} {
		get(t, c, "http://web/a.B/Get?code="+code, "content-type", "application/grpc")
		labels := map[string]string{"direction": "inbound", "classification": class, "status_code": "200"}
		if code != "" {
			labels["grpc_status"] = code
		}
		eventually(t, code+" to be a "+class, func() bool { return w.seriesOf("response_total", labels) > 0 })
	}
	if got := w.seriesOf("response_total", map[string]string{"classification": "success"}); got != 3 {
		t.Errorf("%v successes, want 3", got)
	}
}

func TestAuthoritiesAreLabelsOnlyWhereAskedFor(t *testing.T) {
	at := app(t, hello)
	for _, unsafe := range []bool{false, true} {
		w := newWorld(t, open, func(c *config.Config) { c.UnsafeAuthorityLabel = unsafe }).redirectTo(at).run()
		c := client(t, false, func() (net.Conn, error) { return w.dialPlain(), nil })
		for i := range maxAuthorities + 10 {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://web/x", nil)
			if err != nil {
				t.Fatal(err)
			}
			req.Host = fmt.Sprintf("web-%d", i)
			res, err := c.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			_, _ = io.Copy(io.Discard, res.Body)
			_ = res.Body.Close()
		}
		if got := w.seriesOf("request_total", map[string]string{"authority": "web-3"}); (got == 1) != unsafe {
			t.Errorf("unsafe %v: %v requests of web-3", unsafe, got)
		}
		eventually(t, "the last request is counted", func() bool { return w.seriesOf("request_total", nil) == maxAuthorities+10 })
		if got := w.seriesOf("request_total", nil); got != maxAuthorities+10 {
			t.Errorf("unsafe %v: %v requests, want %d", unsafe, got, maxAuthorities+10)
		}
		if got := w.seriesOf("request_total", map[string]string{"authority": fmt.Sprintf("web-%d", maxAuthorities+5)}); got != 0 {
			t.Errorf("unsafe %v: authorities without an end", unsafe)
		}
	}
}

// TestDetectionIsCounted: the families of connections that the kernel redirected.
func TestDetectionIsCounted(t *testing.T) {
	at := app(t, hello)
	w := newWorld(t).redirectTo(at).run()
	w.allow(at.Port(), detectServer(anybody()))
	for result, send := range map[string]string{
		"http/1": "GET / HTTP/1.0\r\n\r\n", "http/2": "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "not_http": "hello, are you there?\n",
	} {
		c := w.dialPlain()
		_, _ = io.WriteString(c, send)
		labels := map[string]string{"result": result, "srv_group": "policy.linkerd.io", "srv_kind": "server", "srv_name": "web", "srv_port": portText(at.Port())}
		eventually(t, result, func() bool { return w.seriesOf("inbound_tcp_detect_http_results_total", labels) == 1 })
		if !w.has("inbound_tcp_detect_http_results_total", map[string]string{"result": "read_timeout", "srv_name": "web"}) {
			t.Error("what has not been found yet is not there")
		}
		_ = c.Close()
	}
	if got := w.seriesOf("inbound_tcp_detect_http_duration_seconds", map[string]string{"srv_name": "web"}); got != 3 {
		t.Errorf("%v detections took their time, want 3", got)
	}
}

// has reports whether there is a series with the labels, whatever it counts.
func (w *world) has(name string, labels map[string]string) bool {
	w.t.Helper()
	families, err := w.reg.Gather()
	if err != nil {
		w.t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			left := len(labels)
			for _, l := range m.GetLabel() {
				if want, ok := labels[l.GetName()]; ok && want == l.GetValue() {
					left--
				}
			}
			if f.GetName() == name && left == 0 {
				return true
			}
		}
	}
	return false
}
