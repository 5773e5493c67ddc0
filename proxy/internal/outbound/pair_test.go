package outbound

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/weftmesh/weft/proxy/internal/config"
	"github.com/weftmesh/weft/proxy/internal/drain"
	"github.com/weftmesh/weft/proxy/internal/identity"
	"github.com/weftmesh/weft/proxy/internal/identity/identitytest"
	"github.com/weftmesh/weft/proxy/internal/inbound"
	"github.com/weftmesh/weft/proxy/internal/tell"
)

const (
	clientID = "client.shop.serviceaccount.identity.linkerd.cluster.local"
	serverID = "web.shop.serviceaccount.identity.linkerd.cluster.local"
)

// pair is two real proxies: a client's outbound side and a server's inbound side
// with real certificates between them.
type pair struct {
	*rig
	authorities *identitytest.CA
	inbound     *inbound.Inbound
}

func startPair(t *testing.T, policy string) *pair {
	t.Helper()
	p := &pair{authorities: identitytest.New(t)}
	client := p.authorities.Local(t, clientID)
	p.rig = startAs(t, client, patient)
	p.inbound = p.serve(t, p.authorities.Local(t, serverID), policy)
	return p
}

func (p *pair) serve(t *testing.T, id *identity.Local, policy string) *inbound.Inbound {
	t.Helper()
	in, err := inbound.New(inbound.Deps{
		Config: config.Config{
			Inbound: config.Direction{
				Listen: []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:0")}, DetectTimeout: 10 * time.Second, ConnectTimeout: time.Second,
				DiscoveryIdle: time.Minute, MaxInFlight: 1000, MaxIdle: 10, PoolIdle: time.Second,
			},
			Outbound:    config.Direction{Listen: []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:4140")}},
			AdminListen: netip.MustParseAddrPort("127.0.0.1:4191"),
			Policy:      config.Policy{Svc: config.Svc{Addr: "127.0.0.1:1"}, Workload: "workload", Default: policy},
		},
		Identity: id, Policy: newControls().dial(t), // which knows no inbound policies: the default holds
		Metrics: tell.New(tell.Config{}), Drain: drain.New(), Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); _ = in.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	return in
}

// expose makes an application that listens on addr a meshed endpoint.
func (p *pair) expose(authority string, app netip.AddrPort) {
	p.controls.service(authority, meshed(app, serverID, p.inbound.Addr().Port()))
}

func TestTwoProxiesCarryHTTP1(t *testing.T) {
	p := startPair(t, "all-authenticated")
	app := serveHTTP(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		sum := sha256.Sum256(body)
		w.Header().Set("X-Saw", fmt.Sprintf("%s %s %s %d %s", r.Proto, r.Method, r.RequestURI, r.ContentLength, r.Header.Get("L5d-Client-Id")))
		for name := range r.Header {
			if strings.HasPrefix(name, "L5d-") && name != "L5d-Client-Id" {
				w.Header().Add("X-Leaked", name)
			}
		}
		switch r.URL.Path {
		case "/none":
			w.WriteHeader(204)
		case "/trailer":
			w.Header().Set("Trailer", "X-Sum")
			_, _ = w.Write(body)
			w.Header().Set("X-Sum", fmt.Sprintf("%x", sum))
		default:
			_, _ = w.Write(body)
		}
	}))
	p.expose(web, app.addr)
	c := p.client()
	for _, tt := range []struct {
		method, path string
		body         []byte
		saw          string
		status       int
	}{
		{"GET", "/a%2Fb?x=%20", nil, "HTTP/1.1 GET /a%2Fb?x=%20 0 " + clientID, 200},
		{"HEAD", "/", nil, "HTTP/1.1 HEAD / 0 " + clientID, 200},
		{"DELETE", "/none", nil, "HTTP/1.1 DELETE /none 0 " + clientID, 204},
		{"POST", "/trailer", bytes.Repeat([]byte("x"), 70_000), "HTTP/1.1 POST /trailer 70000 " + clientID, 200},
		{"PUT", "/", bytes.Repeat([]byte("y"), 5<<20), "HTTP/1.1 PUT / 5242880 " + clientID, 200},
	} {
		req, _ := http.NewRequestWithContext(t.Context(), tt.method, base+tt.path, bytes.NewReader(tt.body))
		if tt.body == nil {
			req.Body, req.ContentLength = http.NoBody, 0
		}
		res, body := do(t, c, req)
		if res.StatusCode != tt.status || res.Header.Get("X-Saw") != tt.saw || body != string(tt.body) {
			t.Errorf("%s %s: %d, %d bytes, the application saw %q, want %q; %v", tt.method, tt.path, res.StatusCode, len(body), res.Header.Get("X-Saw"), tt.saw, res.Header)
		}
		if leaked := res.Header["X-Leaked"]; leaked != nil || res.Header.Get("L5d-Orig-Proto") != "" {
			t.Errorf("%s %s: leaked %v %v", tt.method, tt.path, leaked, res.Header)
		}
		if tt.path == "/trailer" && res.Trailer.Get("X-Sum") == "" {
			t.Errorf("no trailer: %v", res.Trailer)
		}
	}
}

func TestTwoProxiesCarryGRPC(t *testing.T) {
	p := startPair(t, "all-authenticated")
	const authority = "web.shop.svc.cluster.local:9000"
	lis := listenLoopback(t)
	srv := grpc.NewServer()
	srv.RegisterService(&echoService, nil)
	go func() { _ = srv.Serve(lis) }()
	t.Cleanup(srv.Stop)
	p.expose(authority, addrPort(lis))
	conn := p.grpc(authority)
	var trailer metadata.MD
	out := new(wrapperspb.StringValue)
	if err := conn.Invoke(t.Context(), "/test.Echo/Unary", wrapperspb.String(strings.Repeat("x", 70_000)), out, grpc.Trailer(&trailer)); err != nil || len(out.GetValue()) != 70_000 {
		t.Fatalf("Unary: %v, %d bytes", err, len(out.GetValue()))
	}
	if len(trailer.Get("x-trailer")) != 1 {
		t.Errorf("trailer %v", trailer)
	}
	if err := conn.Invoke(t.Context(), "/test.Echo/Unary", wrapperspb.String("fail"), out); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("a failing call got %v", err)
	}
	if err := conn.Invoke(t.Context(), "/test.Echo/Missing", wrapperspb.String("x"), out); status.Code(err) != codes.Unimplemented {
		t.Errorf("an unknown method got %v", err)
	}
	stream, err := conn.NewStream(t.Context(), &echoService.Streams[0], "/test.Echo/Both")
	if err != nil {
		t.Fatal(err)
	}
	for i := range 10 {
		if err := stream.SendMsg(wrapperspb.String(fmt.Sprint(i))); err != nil {
			t.Fatal(err)
		}
		if err := stream.RecvMsg(out); err != nil || out.GetValue() != fmt.Sprint(i) {
			t.Fatalf("message %d: %q, %v", i, out.GetValue(), err)
		}
	}
	_ = stream.CloseSend()
	if err := stream.RecvMsg(out); !errors.Is(err, io.EOF) || len(stream.Trailer().Get("x-trailer")) != 1 {
		t.Errorf("end of stream: %v, %v", err, stream.Trailer())
	}
}

func TestTwoProxiesCarryBytesAndUpgrades(t *testing.T) {
	p := startPair(t, "all-authenticated")
	at := acceptEach(t, func(c net.Conn) {
		_, _ = io.WriteString(c, "ready\n") // a server that speaks first
		_, _ = io.Copy(c, c)
	})
	const db = "db.shop.svc.cluster.local:5432"
	p.controls.set(func() { p.controls.policies[db] = opaquePolicy(db) })
	p.expose(db, at)
	conn, br := p.connect(db)
	if line, err := br.ReadString('\n'); err != nil || line != "ready\n" {
		t.Fatalf("got %q, %v", line, err)
	}
	_, _ = fmt.Fprint(conn, "ping")
	_ = conn.(*net.TCPConn).CloseWrite()
	if rest, err := io.ReadAll(br); err != nil || string(rest) != "ping" {
		t.Errorf("got %q, %v", rest, err)
	}

	app := serveHTTP(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer func() { _ = conn.Close() }()
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		line, _ := rw.ReadString('\n')
		_, _ = io.WriteString(conn, "you said "+line)
	}))
	p.expose(web, app.addr)
	conn, br = p.connect("")
	_, _ = fmt.Fprintf(conn, "GET http://web.shop.svc.cluster.local/ws HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	res, err := http.ReadResponse(br, nil)
	if err != nil || res.StatusCode != 101 {
		t.Fatalf("got %v, %v", res, err)
	}
	_, _ = fmt.Fprint(conn, "hi\n")
	if line, err := br.ReadString('\n'); err != nil || line != "you said hi\n" {
		t.Errorf("got %q, %v", line, err)
	}
}

func TestTwoProxiesDenied(t *testing.T) {
	p := startPair(t, "deny")
	app := serveHTTP(t, echo("a"))
	p.expose(web, app.addr)
	req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://web.shop.svc.cluster.local/", nil)
	res, err := p.client().Do(req)
	if err != nil {
		return // the deny policy is opaque: the connection may just end
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode < 400 {
		t.Errorf("denied, but answered %d", res.StatusCode)
	}
}

func TestTwoProxiesOneLeavesUnderLoad(t *testing.T) {
	p := startPair(t, "all-authenticated")
	second := p.serve(t, p.authorities.Local(t, serverID), "all-authenticated")
	a, b := serveHTTP(t, echo("a")), serveHTTP(t, echo("b"))
	portOf := func(in *inbound.Inbound) uint16 { return in.Addr().Port() }
	both := []netip.AddrPort{a.addr, b.addr}
	p.controls.service(web, meshed(both[0], serverID, portOf(p.inbound)), meshed(both[1], serverID, portOf(second)))
	l := p.load(4, "http://web.shop.svc.cluster.local/", "payload")
	eventually(t, "both serve", func() bool { return l.served("a") > 20 && l.served("b") > 20 })
	for range 5 {
		p.controls.service(web, meshed(both[0], serverID, portOf(p.inbound)))
		n := l.ok.Load()
		eventually(t, "requests go on", func() bool { return l.ok.Load() > n+50 })
		p.controls.service(web, meshed(both[1], serverID, portOf(second)))
		n = l.ok.Load()
		eventually(t, "requests go on", func() bool { return l.ok.Load() > n+50 })
	}
	l.end(t)
}
