package outbound

import (
	"bufio"
	"context"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	destpb "github.com/linkerd/linkerd2-proxy-api/go/destination"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/weftmesh/weft/proxy/internal/fate"
)

// nobody is an address where nothing listens, and nothing will: it is taken by a
// socket that does not.
func nobody(t *testing.T) netip.AddrPort {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	at, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	in := at.(*unix.SockaddrInet4)
	return netip.AddrPortFrom(netip.AddrFrom4(in.Addr), uint16(in.Port))
}

// exposeAll makes several applications the endpoints of one name, each behind a
// proxy of its own.
func (p *pair) exposeAll(t *testing.T, authority string, apps ...netip.AddrPort) {
	t.Helper()
	in := p.inbound
	var endpoints []*destpb.WeightedAddr
	for i, app := range apps {
		if i > 0 {
			in = p.serve(t, p.authorities.Local(t, serverID), "all-authenticated")
		}
		endpoints = append(endpoints, meshed(app, serverID, in.Addr().Port()))
	}
	p.controls.service(authority, endpoints...)
}

// warm waits until there is a connection to the one endpoint: on a busy machine
// that takes longer than a proxy waits.
func (p *pair) warm(t *testing.T) {
	t.Helper()
	c := p.client()
	eventually(t, "the first endpoint answers", func() bool {
		req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://web.shop.svc.cluster.local/", nil)
		res, _ := do(t, c, req)
		return res.StatusCode == http.StatusOK
	})
}

// TestTwoProxiesOneApplicationGone: the proxy of a pod outlives its application
// for a while, and discovery knows the pod for longer. Whatever the method, a
// request that the application has not seen goes to another pod.
func TestTwoProxiesOneApplicationGone(t *testing.T) {
	for _, kind := range []struct{ name, body string }{{"GET", ""}, {"POST", "payload"}, {"a long POST", strings.Repeat("x", 50_000)}} {
		t.Run(kind.name, func(t *testing.T) {
			p := startPair(t, "all-authenticated")
			a := serveHTTP(t, echo("a")).addr
			p.exposeAll(t, web, a)
			p.warm(t)
			p.exposeAll(t, web, a, nobody(t), nobody(t))
			l := p.load(4, "http://web.shop.svc.cluster.local/", kind.body)
			eventually(t, "requests are served", func() bool { return l.ok.Load() > 100 })
			l.end(t)
		})
	}
}

func TestTwoProxiesOneApplicationEndsUnderLoad(t *testing.T) {
	p := startPair(t, "all-authenticated")
	a, b := serveHTTP(t, echo("a")), serveHTTP(t, echo("b"))
	p.exposeAll(t, web, a.addr, b.addr)
	l := p.load(4, "http://web.shop.svc.cluster.local/", "")
	eventually(t, "both serve", func() bool { return l.served("a") > 20 && l.served("b") > 20 })
	if err := b.http.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	n := l.ok.Load()
	eventually(t, "requests go on", func() bool { return l.ok.Load() > n+100 })
	l.end(t)
}

// TestTwoProxiesOneApplicationBreaksOff: an application that ends with a request
// in its queue has perhaps seen it. Only what may be done twice is sent again,
// and once.
func TestTwoProxiesOneApplicationBreaksOff(t *testing.T) {
	p := startPair(t, "all-authenticated")
	at := acceptEach(t, func(c net.Conn) {
		_, _ = http.ReadRequest(bufio.NewReader(c))
	})
	a := serveHTTP(t, echo("a")).addr
	p.exposeAll(t, web, a)
	p.warm(t)
	p.exposeAll(t, web, a, at)
	l := p.load(2, "http://web.shop.svc.cluster.local/", "")
	eventually(t, "requests are served", func() bool { return l.ok.Load() > 100 })
	l.end(t)
	l = p.load(2, "http://web.shop.svc.cluster.local/", "payload")
	eventually(t, "a POST fails", func() bool { return l.failed.Load() > 0 })
	close(l.stop)
	l.wg.Wait()
}

func TestTwoProxiesOneGRPCServerGone(t *testing.T) {
	p := startPair(t, "all-authenticated")
	const authority = "web.shop.svc.cluster.local:9000"
	lis := listenLoopback(t)
	srv := grpc.NewServer()
	srv.RegisterService(&echoService, nil)
	go func() { _ = srv.Serve(lis) }()
	t.Cleanup(srv.Stop)
	p.exposeAll(t, authority, nobody(t), addrPort(lis))
	conn := p.grpc(authority)
	for i := range 100 {
		out := new(wrapperspb.StringValue)
		if err := conn.Invoke(t.Context(), "/test.Echo/Unary", wrapperspb.String("x"), out); err != nil || out.GetValue() != "x" {
			t.Fatalf("call %d: %q, %v", i, out.GetValue(), err)
		}
	}
}

// TestTwoProxiesNoApplication: with nowhere else to go the answer is Linkerd's,
// at once and without our header.
func TestTwoProxiesNoApplication(t *testing.T) {
	for _, apps := range []int{1, 2} {
		p := startPair(t, "all-authenticated")
		p.exposeAll(t, web, []netip.AddrPort{nobody(t), nobody(t)}[:apps]...)
		c := p.client()
		for range 10 {
			req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://web.shop.svc.cluster.local/", nil)
			res, _ := do(t, c, req)
			if res.StatusCode != http.StatusBadGateway || res.Header.Get(fate.Name) != "" {
				t.Errorf("%d endpoints: %d %v", apps, res.StatusCode, res.Header)
			}
		}
	}
}

// TestFateOfAnUnmeshedEndpoint: what did not prove who it is is not believed.
func TestFateOfAnUnmeshedEndpoint(t *testing.T) {
	r := start(t)
	liar := func(name string) netip.AddrPort {
		return serveHTTP(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			fate.Set(w.Header(), fate.Unsent)
			w.Header().Set("X-From", name)
			w.WriteHeader(http.StatusBadGateway)
		})).addr
	}
	r.controls.service(web, plain(liar("a")), plain(liar("b")))
	req, _ := http.NewRequestWithContext(context.WithoutCancel(t.Context()), http.MethodGet, "http://web.shop.svc.cluster.local/", nil)
	res, _ := do(t, r.client(), req)
	if res.StatusCode != http.StatusBadGateway || res.Header.Get("X-From") == "" || res.Header.Get(fate.Name) != "" {
		t.Errorf("%d %v", res.StatusCode, res.Header)
	}
}
