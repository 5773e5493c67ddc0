package inbound

import (
	"bufio"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	httproute "github.com/linkerd/linkerd2-proxy-api/go/http_route"
	types "github.com/linkerd/linkerd2-proxy-api/go/http_types"
	pb "github.com/linkerd/linkerd2-proxy-api/go/inbound"
	"github.com/linkerd/linkerd2-proxy-api/go/meta"
	"golang.org/x/sys/unix"

	"github.com/weftmesh/weft/proxy/internal/config"
	"github.com/weftmesh/weft/proxy/internal/identity"
	"github.com/weftmesh/weft/proxy/internal/identity/identitytest"
)

// TestSilentClientHoldsNobodyUp: TLS detection of one connection is no business of
// another's (spec/proxy.md §17, 49).
func TestSilentClientHoldsNobodyUp(t *testing.T) {
	at := app(t, hello)
	w := newWorld(t, open, func(c *config.Config) { c.Inbound.DetectTimeout = time.Minute }).redirectTo(at).run()
	for range 20 {
		w.dialPlain() // and says nothing
	}
	friend := w.ca.Local(t, alice)
	if res, _ := get(t, client(t, false, func() (net.Conn, error) { return w.tls(friend) }), "http://web/"); res.StatusCode != 200 {
		t.Errorf("%d", res.StatusCode)
	}
}

// statusOf is the status of a request's answer; 0 if there is none.
func statusOf(ctx context.Context, c *http.Client) int {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://web/", nil)
	if err != nil {
		return 0
	}
	res, err := c.Do(req)
	if err != nil {
		return 0
	}
	_ = res.Body.Close()
	return res.StatusCode
}

// TestNothingIsServedBeforeTheCertificate: connections wait in the kernel until
// there is one, and are served then, in HTTP/1 and HTTP/2 (50-53).
func TestNothingIsServedBeforeTheCertificate(t *testing.T) {
	at := app(t, hello)
	w := newWorld(t, open).redirectTo(at)
	ca := w.ca
	ca.Fail(errors.New("no issuer yet"))
	cfg := ca.Config(t, server)
	own, err := identity.New(identity.Deps{Config: cfg, Dial: identitytest.Dial(cfg), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); _ = own.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	w.in.deps.Identity = own
	w.run()
	answers := make(chan int, 2)
	for _, v2 := range []bool{false, true} {
		c := client(t, v2, func() (net.Conn, error) { return w.dialPlain(), nil })
		go func() {
			answers <- statusOf(t.Context(), c)
		}()
	}
	calls := ca.Calls()
	eventually(t, "more attempts", func() bool { return ca.Calls() > calls+5 })
	select {
	case code := <-answers:
		t.Fatalf("served without a certificate: %d", code)
	default:
	}
	ca.Fail(nil)
	for range 2 {
		if code := <-answers; code != 200 {
			t.Errorf("then: %d", code)
		}
	}
}

// TestProtocolsOfPolicies: what is taken for HTTP, by the policy's protocol (90).
func TestProtocolsOfPolicies(t *testing.T) {
	web := app(t, hello)
	echo := tcpApp(t, func(c *net.TCPConn) { _, _ = io.Copy(c, c) })
	as := func(kind *pb.ProxyProtocol) *pb.Server {
		s := detectServer(anybody())
		s.Protocol = kind
		return s
	}
	http1 := as(&pb.ProxyProtocol{Kind: &pb.ProxyProtocol_Http1_{Http1: &pb.ProxyProtocol_Http1{}}})
	http2 := as(&pb.ProxyProtocol{Kind: &pb.ProxyProtocol_Http2_{Http2: &pb.ProxyProtocol_Http2{}}})
	grpc := as(&pb.ProxyProtocol{Kind: &pb.ProxyProtocol_Grpc_{Grpc: &pb.ProxyProtocol_Grpc{}}})
	opaque := as(&pb.ProxyProtocol{Kind: &pb.ProxyProtocol_Opaque_{Opaque: &pb.ProxyProtocol_Opaque{}}})
	for _, tt := range []struct {
		name   string
		policy *pb.Server
		secure bool
		says   string // "1" and "2" are requests
		want   string // "" is a closed connection
	}{
		{"detect, HTTP/1", detectServer(anybody()), false, "1", "HTTP/1.1"},
		{"detect, HTTP/2", detectServer(anybody()), true, "2", "HTTP/2.0"},
		{"detect, no HTTP", detectServer(anybody()), true, "no request at all\n", "no request at all\n"},
		{"HTTP/1", http1, false, "1", "HTTP/1.1"},
		{"HTTP/1 of a mesh peer that upgraded it", http1, true, "2", "HTTP/2.0"},
		{"HTTP/1, no HTTP", http1, true, "no request at all\n", ""},
		{"HTTP/2", http2, false, "2", "HTTP/2.0"},
		{"HTTP/2 over TLS", http2, true, "2", "HTTP/2.0"},
		{"gRPC", grpc, true, "2", "HTTP/2.0"},
		{"opaque", opaque, false, "no request at all\n", "no request at all\n"},
		{"opaque, though it looks like HTTP", opaque, false, "GET / HTTP/1.0\n\n", "GET / HTTP/1.0\n\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			at := web
			if len(tt.says) > 1 {
				at = echo
			}
			w := newWorld(t).redirectTo(at).run()
			w.allow(at.Port(), tt.policy)
			friend := w.ca.Local(t, alice)
			open := func() (net.Conn, error) {
				if tt.secure {
					return w.tls(friend)
				}
				return w.dialPlain(), nil
			}
			if len(tt.says) == 1 {
				if res, body := get(t, client(t, tt.says == "2", open), "http://web/a.B/C"); !strings.HasPrefix(body, tt.want) {
					t.Errorf("%d %q, want %s", res.StatusCode, body, tt.want)
				}
				return
			}
			c, err := open()
			if err != nil {
				t.Fatal(err)
			}
			_, _ = io.WriteString(c, tt.says)
			if half, ok := c.(interface{ CloseWrite() error }); ok {
				_ = half.CloseWrite()
			}
			if b, _ := io.ReadAll(c); string(b) != tt.want && (tt.want != "" || !strings.HasPrefix(string(b), "HTTP/1.1 400")) {
				t.Errorf("%q, want %q", b, tt.want)
			}
		})
	}
}

// TestWhoIsTold: the reason of a failure is told to mesh peers only (91).
func TestWhoIsTold(t *testing.T) {
	full := blackhole(t)
	for _, tt := range []struct {
		name   string
		at     netip.AddrPort
		v2     bool
		grpc   bool
		status int
		code   string
	}{
		{"refused, HTTP/1", netip.MustParseAddrPort("127.0.0.1:1"), false, false, 502, ""},
		{"refused, HTTP/2", netip.MustParseAddrPort("127.0.0.1:1"), true, false, 502, ""},
		{"refused, gRPC", netip.MustParseAddrPort("127.0.0.1:1"), true, true, 200, "14"},
		{"timed out, HTTP/1", full, false, false, 504, ""},
		{"timed out, HTTP/2", full, true, false, 504, ""},
		{"timed out, gRPC", full, true, true, 200, "4"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, open, func(c *config.Config) { c.Inbound.ConnectTimeout = 100 * time.Millisecond }).redirectTo(tt.at).run()
			friend := w.ca.Local(t, alice)
			for _, meshed := range []bool{true, false} {
				c := client(t, tt.v2, func() (net.Conn, error) {
					if meshed {
						return w.tls(friend)
					}
					return w.dialPlain(), nil
				})
				var headers []string
				if tt.grpc {
					headers = []string{"content-type", "application/grpc"}
				}
				res, _ := get(t, c, "http://web/a.B/C", headers...)
				told := res.Header.Get("l5d-proxy-error") != ""
				if res.StatusCode != tt.status || res.Header.Get("grpc-status") != tt.code || told != meshed || tt.grpc && (res.Header.Get("grpc-message") != "") != meshed {
					t.Errorf("meshed %v: %d %v", meshed, res.StatusCode, res.Header)
				}
			}
		})
	}
}

// blackhole is a listener whose queue is full: connects to it get no answer.
func blackhole(t *testing.T) netip.AddrPort {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	raw, err := l.(*net.TCPListener).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	_ = raw.Control(func(fd uintptr) { err = unix.Listen(int(fd), 0) })
	if err != nil {
		t.Fatal(err)
	}
	at := l.Addr().(*net.TCPAddr).AddrPort()
	for range 8 { // whoever gets no place fills the queue up all the same
		c, err := (&net.Dialer{Timeout: time.Second}).DialContext(t.Context(), "tcp", at.String())
		if err != nil {
			return at
		}
		t.Cleanup(func() { _ = c.Close() })
	}
	t.Skip("this system's queues do not fill up")
	return at
}

// TestFiltersOfARoute: header filters change requests, injected failures are what
// they are in Linkerd (95).
func TestFiltersOfARoute(t *testing.T) {
	at := app(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, strings.Join(r.Header.Values("X-Was"), ",")+" "+r.Header.Get("X-New")+" "+r.Header.Get("X-Gone")+strings.TrimPrefix(r.Host, "web"))
	}))
	w := newWorld(t).redirectTo(at).run()
	set := func(name, value string) *httproute.RequestHeaderModifier {
		return &httproute.RequestHeaderModifier{
			Add: headersOf("X-New", value), Set: headersOf("X-Was", value), Remove: []string{name},
		}
	}
	s := detectServer(anybody())
	rule := func(path string, f *pb.HttpRoute_Filter) *pb.HttpRoute_Rule {
		return &pb.HttpRoute_Rule{
			Matches: []*httproute.HttpRouteMatch{{Path: &httproute.PathMatch{Kind: &httproute.PathMatch_Exact{Exact: path}}}},
			Filters: []*pb.HttpRoute_Filter{f},
		}
	}
	s.GetProtocol().GetDetect().HttpRoutes = []*pb.HttpRoute{{
		Metadata: &meta.Metadata{Kind: &meta.Metadata_Default{Default: "filters"}}, Authorizations: []*pb.Authz{anybody()},
		Rules: []*pb.HttpRoute_Rule{
			rule("/set", &pb.HttpRoute_Filter{Kind: &pb.HttpRoute_Filter_RequestHeaderModifier{RequestHeaderModifier: set("X-Gone", "v")}}),
			rule("/host", &pb.HttpRoute_Filter{Kind: &pb.HttpRoute_Filter_RequestHeaderModifier{RequestHeaderModifier: &httproute.RequestHeaderModifier{Set: headersOf("Host", "other")}}}),
			rule("/never", &pb.HttpRoute_Filter{Kind: &pb.HttpRoute_Filter_FailureInjector{FailureInjector: &httproute.HttpFailureInjector{
				Status: 418, Ratio: &httproute.Ratio{Numerator: 0, Denominator: 100},
			}}}),
			rule("/fail", &pb.HttpRoute_Filter{Kind: &pb.HttpRoute_Filter_FailureInjector{FailureInjector: &httproute.HttpFailureInjector{Status: 418}}}),
		},
	}}
	w.allow(at.Port(), s)
	c := client(t, false, func() (net.Conn, error) { return w.dialPlain(), nil })
	if _, body := get(t, c, "http://web/set", "X-Was", "old", "X-Gone", "here"); body != "v v " {
		t.Errorf("%q", body)
	}
	if _, body := get(t, c, "http://web/host"); body != "  other" {
		t.Errorf("a filter made the host %q", body)
	}
	friend := w.ca.Local(t, alice)
	peer := client(t, true, func() (net.Conn, error) { return w.tls(friend) })
	if _, body := get(t, peer, "http://web/host", "l5d-orig-proto", "HTTP/1.1", "Host", "web"); body != "  other" {
		t.Errorf("a filter made the host of a peer's request %q", body)
	}
	if res, _ := get(t, c, "http://web/never"); res.StatusCode != 200 {
		t.Errorf("a failure injected into none of the requests: %d", res.StatusCode)
	}
	if res, _ := get(t, c, "http://web/fail"); res.StatusCode != 500 {
		t.Errorf("an injected failure: %d", res.StatusCode)
	}
	if res, _ := get(t, c, "http://web/other"); res.StatusCode != 404 {
		t.Errorf("no route: %d", res.StatusCode)
	}
}

func headersOf(name, value string) *types.Headers {
	return &types.Headers{Headers: []*types.Headers_Header{{Name: name, Value: []byte(value)}}}
}

// TestInFlightLimit: what exceeds it is refused at once (121).
func TestInFlightLimit(t *testing.T) {
	release, busy := make(chan struct{}), make(chan struct{}, 1)
	at := app(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		busy <- struct{}{}
		<-release
	}))
	w := newWorld(t, open, func(c *config.Config) { c.Inbound.MaxInFlight = 1 }).redirectTo(at).run()
	first := make(chan int, 1)
	c := client(t, false, func() (net.Conn, error) { return w.dialPlain(), nil })
	go func() { first <- statusOf(t.Context(), c) }()
	<-busy
	if res, _ := get(t, client(t, false, func() (net.Conn, error) { return w.dialPlain(), nil }), "http://web/"); res.StatusCode != 503 {
		t.Errorf("%d, want 503", res.StatusCode)
	}
	close(release)
	if code := <-first; code != 200 {
		t.Errorf("the first got %d", code)
	}
	if got := w.seriesOf("inbound_http_errors_total", map[string]string{"error": "loadshed"}); got != 1 {
		t.Errorf("%v counted", got)
	}
}

// TestTransportsAreCounted: connections of clients and to the application, for
// HTTP and for bytes (112); none of them is an error (116).
func TestTransportsAreCounted(t *testing.T) {
	echo := tcpApp(t, func(c *net.TCPConn) {
		line, _ := bufio.NewReader(c).ReadString('\n')
		_, _ = io.WriteString(c, line)
	})
	for _, tt := range []struct {
		name string
		at   netip.AddrPort
		say  string
	}{{"HTTP", app(t, hello), "GET / HTTP/1.1\r\nHost: web\r\nConnection: close\r\n\r\n"}, {"bytes", echo, "no request at all\n"}} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, open).redirectTo(tt.at).run()
			c, err := w.tls(w.ca.Local(t, alice))
			if err != nil {
				t.Fatal(err)
			}
			_, _ = io.WriteString(c, tt.say)
			_, _ = io.ReadAll(c)
			_ = c.Close()
			for _, peer := range []string{"src", "dst"} {
				labels := map[string]string{"direction": "inbound", "peer": peer, "target_port": portText(tt.at.Port())}
				for _, name := range []string{"tcp_open_total", "tcp_read_bytes_total", "tcp_write_bytes_total"} {
					if got := w.seriesOf(name, labels); got < 1 {
						t.Errorf("%s of %s: %v", name, peer, got)
					}
				}
				w.in.closeApps()
				eventually(t, "the end of "+peer, func() bool {
					return w.seriesOf("tcp_close_total", labels) == 1 && w.seriesOf("tcp_open_connections", labels) == 0
				})
			}
			if got := w.seriesOf("tcp_open_total", map[string]string{"peer": "src", "client_id": alice, "tls": "true"}); got != 1 {
				t.Errorf("clients by identity: %v", got)
			}
			if got := w.seriesOf("inbound_tcp_errors_total", nil); got != 0 {
				t.Errorf("%v errors", got)
			}
		})
	}
}
