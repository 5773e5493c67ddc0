package outbound

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	destpb "github.com/linkerd/linkerd2-proxy-api/go/destination"
	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/weftmesh/weft/proxy/internal/config"
	"github.com/weftmesh/weft/proxy/internal/detect"
	"github.com/weftmesh/weft/proxy/internal/header"
)

// echoService is a gRPC service without generated code.
var echoService = grpc.ServiceDesc{
	ServiceName: "test.Echo", HandlerType: (*any)(nil),
	Methods: []grpc.MethodDesc{{MethodName: "Unary", Handler: func(_ any, ctx context.Context, dec func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
		in := new(wrapperspb.StringValue)
		if err := dec(in); err != nil {
			return nil, err
		}
		_ = grpc.SetTrailer(ctx, metadata.Pairs("x-trailer", "yes"))
		if in.GetValue() == "fail" {
			return nil, status.Error(codes.ResourceExhausted, "no more")
		}
		return in, nil
	}}},
	Streams: []grpc.StreamDesc{{StreamName: "Both", ServerStreams: true, ClientStreams: true, Handler: func(_ any, s grpc.ServerStream) error {
		for {
			in := new(wrapperspb.StringValue)
			err := s.RecvMsg(in)
			if errors.Is(err, io.EOF) {
				s.SetTrailer(metadata.Pairs("x-trailer", "end"))
				return nil
			}
			if err != nil {
				return err
			}
			if err := s.SendMsg(in); err != nil {
				return err
			}
		}
	}}},
}

// grpcHandler serves the service through net/http's HTTP/2, as the sidecar does.
func grpcHandler() http.Handler {
	srv := grpc.NewServer()
	srv.RegisterService(&echoService, nil)
	return srv
}

func (r *rig) grpc(authority string) *grpc.ClientConn {
	r.t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+authority, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(_ context.Context, addr string) (net.Conn, error) {
			c, br := r.connect(addr)
			_ = c.SetDeadline(time.Time{})
			return buffered(c, br), nil
		}))
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func TestGRPCThroughConnect(t *testing.T) {
	for _, kind := range []string{"plain", "meshed"} {
		t.Run(kind, func(t *testing.T) {
			r := start(t)
			const authority = "web.shop.svc.cluster.local:9000"
			if kind == "plain" {
				lis := listenLoopback(t)
				srv := grpc.NewServer()
				srv.RegisterService(&echoService, nil)
				go func() { _ = srv.Serve(lis) }()
				t.Cleanup(srv.Stop)
				r.controls.service(authority, plain(addrPort(lis)))
			} else {
				peer := newSidecar(t, r.ca, "web.shop", grpcHandler())
				r.controls.service(authority, meshed(netip.AddrPortFrom(peer.addr.Addr(), 9000), "web.shop", peer.addr.Port()))
			}
			conn := r.grpc(authority)

			var trailer metadata.MD
			out := new(wrapperspb.StringValue)
			big := strings.Repeat("x", 70_000) // more than a window (complaint E12)
			if err := conn.Invoke(t.Context(), "/test.Echo/Unary", wrapperspb.String(big), out, grpc.Trailer(&trailer)); err != nil || out.GetValue() != big {
				t.Fatalf("Unary: %v, %d bytes", err, len(out.GetValue()))
			}
			if got := trailer.Get("x-trailer"); len(got) != 1 || got[0] != "yes" {
				t.Errorf("trailer %v", trailer)
			}
			err := conn.Invoke(t.Context(), "/test.Echo/Unary", wrapperspb.String("fail"), out)
			if status.Code(err) != codes.ResourceExhausted || status.Convert(err).Message() != "no more" {
				t.Errorf("a failing call got %v", err)
			}

			stream, err := conn.NewStream(t.Context(), &echoService.Streams[0], "/test.Echo/Both")
			if err != nil {
				t.Fatal(err)
			}
			for i := range 20 {
				want := fmt.Sprint(i)
				if err := stream.SendMsg(wrapperspb.String(want)); err != nil {
					t.Fatal(err)
				}
				if err := stream.RecvMsg(out); err != nil || out.GetValue() != want {
					t.Fatalf("message %d: %q, %v", i, out.GetValue(), err)
				}
			}
			_ = stream.CloseSend()
			if err := stream.RecvMsg(out); !errors.Is(err, io.EOF) {
				t.Errorf("end of stream: %v", err)
			}
			if got := stream.Trailer().Get("x-trailer"); len(got) != 1 {
				t.Errorf("trailer %v", stream.Trailer())
			}
			eventually(t, "calls are counted by status", func() bool {
				return r.series("response_total", map[string]string{"grpc_status": "8"}) == 1 &&
					r.series("response_total", map[string]string{"grpc_status": "0", "classification": "success"}) == 2
			})
		})
	}
}

func TestGRPCErrorsSpeakGRPC(t *testing.T) {
	r := start(t)
	const authority = "web.shop.svc.cluster.local:9000"
	r.controls.service(authority)
	err := r.grpc(authority).Invoke(t.Context(), "/test.Echo/Unary", wrapperspb.String("x"), new(wrapperspb.StringValue))
	if status.Code(err) != codes.DeadlineExceeded || !strings.Contains(err.Error(), "no endpoint became available") {
		t.Errorf("got %v", err)
	}
}

func TestOpaqueBytesOverMutualTLS(t *testing.T) {
	r := start(t)
	const authority = "db.shop.svc.cluster.local:5432"
	peer := newSidecar(t, r.ca, "db.shop", nil)
	r.controls.set(func() { r.controls.policies[authority] = opaquePolicy(authority) })
	r.controls.service(authority, meshed(netip.AddrPortFrom(peer.addr.Addr(), 5432), "db.shop", peer.addr.Port()))
	conn, br := r.connect(authority)
	_, _ = fmt.Fprint(conn, "GET / HTTP/1.1\n") // not looked at: the policy says bytes
	if line, err := br.ReadString('\n'); err != nil || line != "echo GET / HTTP/1.1\n" {
		t.Fatalf("got %q, %v", line, err)
	}
	if got, want := <-peer.headers, (header.Header{Port: 5432}); got != want {
		t.Errorf("transport header %+v, want %+v", got, want)
	}
	// Our end of the connection ends; the other may still answer, then ends too.
	_, _ = fmt.Fprint(conn, "last\n")
	_ = conn.(*net.TCPConn).CloseWrite()
	rest, err := io.ReadAll(br)
	if err != nil || string(rest) != "echo last\n" {
		t.Errorf("after a half close: %q, %v", rest, err)
	}
	eventually(t, "connections are counted as closed", func() bool {
		return r.series("tcp_close_total", map[string]string{"peer": "dst", "server_id": "db.shop"}) == 1 &&
			r.series("tcp_open_connections", map[string]string{"peer": "src"}) == 0
	})
}

func TestServerSpeaksFirstOnAnOpaquePort(t *testing.T) {
	const authority = "mail.shop.svc.cluster.local:25"
	at := acceptEach(t, func(c net.Conn) {
		_, _ = io.WriteString(c, "220 hi\n")
	})
	for _, way := range []string{"policy", "profile", "detect timeout"} {
		t.Run(way, func(t *testing.T) {
			wait := time.Hour // for the client's first bytes, which do not come
			if way == "detect timeout" {
				wait = 50 * time.Millisecond
			}
			r := start(t, func(c *config.Config) { c.Outbound.DetectTimeout = wait })
			switch way {
			case "policy":
				r.controls.set(func() { r.controls.policies[authority] = opaquePolicy(authority) })
			case "profile":
				r.controls.set(func() { r.controls.profiles[authority] = &destpb.DestinationProfile{OpaqueProtocol: true} })
			}
			r.controls.service(authority, plain(at))
			_, br := r.connect(authority)
			if line, err := br.ReadString('\n'); err != nil || line != "220 hi\n" {
				t.Errorf("got %q, %v", line, err)
			}
		})
	}
}

func TestManyBytesArriveWhole(t *testing.T) {
	r := start(t)
	const authority = "db.shop.svc.cluster.local:5432"
	at := acceptEach(t, func(c net.Conn) { _, _ = io.Copy(c, c) })
	r.controls.set(func() { r.controls.policies[authority] = opaquePolicy(authority) })
	r.controls.service(authority, plain(at))
	conn, br := r.connect(authority)
	data := make([]byte, 4<<20)
	rng := rand.NewChaCha8([32]byte{1})
	_, _ = rng.Read(data)
	go func() {
		for rest := data; len(rest) > 0; {
			n := min(1+int(rng.Uint64()%70_000), len(rest))
			if _, err := conn.Write(rest[:n]); err != nil {
				return
			}
			rest = rest[n:]
		}
		_ = conn.(*net.TCPConn).CloseWrite()
	}()
	got, err := io.ReadAll(br)
	if err != nil || sha256.Sum256(got) != sha256.Sum256(data) {
		t.Errorf("%d of %d bytes, %v", len(got), len(data), err)
	}
}

func TestHTTPInsideConnectIsRoutedAsHTTP(t *testing.T) {
	r := start(t)
	app := serveHTTP(t, echo("a"))
	r.controls.service(web, plain(app.addr))
	conn, br := r.connect(web)
	for range 2 {
		_, _ = fmt.Fprintf(conn, "GET /x HTTP/1.1\r\nHost: web.shop.svc.cluster.local\r\n\r\n")
		res, err := http.ReadResponse(br, nil)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(res.Body)
		if string(body) != "a " || res.Header.Get("X-Uri") != "/x" {
			t.Errorf("got %q %v", body, res.Header)
		}
	}
	if got := r.series("request_total", map[string]string{"direction": "outbound"}); got != 2 {
		t.Errorf("request_total = %v", got)
	}
}

func TestWrongPeerIdentityClosesOpaqueConnections(t *testing.T) {
	r := start(t)
	const authority = "db.shop.svc.cluster.local:5432"
	peer := newSidecar(t, r.ca, "mallory.shop", nil)
	r.controls.set(func() { r.controls.policies[authority] = opaquePolicy(authority) })
	r.controls.service(authority, meshed(netip.AddrPortFrom(peer.addr.Addr(), 5432), "db.shop", peer.addr.Port()))
	conn, br := r.connect(authority)
	_, _ = fmt.Fprint(conn, "secret\n")
	if _, err := br.ReadString('\n'); err == nil {
		t.Error("the connection was carried")
	}
	if peer.bytes.Load() != 0 || len(peer.headers) != 0 {
		t.Error("bytes reached a peer that is not who it should be")
	}
}

// goawayOnce is an HTTP/2 server that refuses the first stream of its first
// connection by a GOAWAY that says it looked at none.
func TestRequestsThatNobodyLookedAtMove(t *testing.T) {
	r := start(t)
	lis := listenLoopback(t)
	t.Cleanup(func() { _ = lis.Close() })
	go func() {
		for n := 0; ; n++ {
			c, err := lis.Accept()
			if err != nil {
				return
			}
			if n > 0 {
				go (&http2.Server{}).ServeConn(c, &http2.ServeConnOpts{Handler: echo("b")}) //nolint:staticcheck // the one way to serve a single connection
				continue
			}
			go refuse(c)
		}
	}()
	r.controls.service(web, hintedH2(addrPort(lis)))
	req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://web.shop.svc.cluster.local/", strings.NewReader("body"))
	if res, body := do(t, r.client(), req); res.StatusCode != 200 || body != "b body" {
		t.Errorf("got %d %q %q", res.StatusCode, body, res.Header.Get("L5d-Proxy-Error"))
	}
}

func refuse(c net.Conn) {
	defer func() { _ = c.Close() }()
	preface := make([]byte, len(http2.ClientPreface))
	if _, err := io.ReadFull(c, preface); err != nil || !bytes.Equal(preface, []byte(http2.ClientPreface)) {
		return
	}
	f := http2.NewFramer(c, c)
	_ = f.WriteSettings()
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			return
		}
		switch frame := frame.(type) {
		case *http2.SettingsFrame:
			if !frame.IsAck() {
				_ = f.WriteSettingsAck()
			}
		case *http2.HeadersFrame:
			_ = f.WriteGoAway(0, http2.ErrCodeNo, nil)
		}
	}
}

// buffered puts what br has read ahead before the rest.
func buffered(conn net.Conn, br *bufio.Reader) net.Conn {
	if n := br.Buffered(); n > 0 {
		head, _ := br.Peek(n)
		return detect.Replay(conn, append([]byte(nil), head...))
	}
	return conn
}
