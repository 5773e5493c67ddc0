package tap

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"testing"
	"time"

	pb "github.com/linkerd/linkerd2-proxy-api/go/tap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/weftmesh/weft/proxy/internal/h2"
	"github.com/weftmesh/weft/proxy/internal/identity"
	"github.com/weftmesh/weft/proxy/internal/identity/identitytest"
	"github.com/weftmesh/weft/proxy/internal/message"
)

const (
	own    = "web.shop.serviceaccount.identity.linkerd.cluster.local"
	tapper = "tap.linkerd-viz.serviceaccount.identity.linkerd.cluster.local"
	other  = "web.other.serviceaccount.identity.linkerd.cluster.local"
)

// rig is a tap server and the authority of everybody's certificates.
type rig struct {
	*Registry
	ca   *identitytest.CA
	addr string
}

func serve(t *testing.T) *rig {
	t.Helper()
	r := &rig{Registry: New(), ca: identitytest.New(t)}
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r.addr = l.Addr().String()
	s := &Server{Registry: r.Registry, Identity: r.ca.Local(t, own), Client: tapper, Log: slog.New(slog.DiscardHandler)}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- s.Serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return r
}

// client is gRPC without its demand for an ALPN.
type client struct {
	meshTLS
	config *tls.Config
}

func (c *client) ClientHandshake(ctx context.Context, _ string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn := tls.Client(raw, c.config)
	return conn, proven{CommonAuthInfo: credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity}}, conn.HandshakeContext(ctx)
}

func (c *client) Clone() credentials.TransportCredentials { return c }

// as connects with an identity; nil connects in plaintext.
func (r *rig) as(t *testing.T, id *identity.Local) pb.TapClient {
	t.Helper()
	creds := insecure.NewCredentials()
	if id != nil {
		creds = &client{config: id.ClientTLS(own, own)}
	}
	conn, err := grpc.NewClient("passthrough:///"+r.addr, grpc.WithTransportCredentials(creds))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return pb.NewTapClient(conn)
}

var everything = &pb.ObserveRequest_Match{Match: &pb.ObserveRequest_Match_All{All: &pb.ObserveRequest_Match_Seq{}}}

func TestOnlyTheTapServiceMayTap(t *testing.T) {
	r := serve(t)
	for name, id := range map[string]*identity.Local{"another": r.ca.Local(t, other), "nobody": nil} {
		stream, err := r.as(t, id).Observe(t.Context(), &pb.ObserveRequest{Limit: 1, Match: everything})
		if err == nil {
			_, err = stream.Recv()
		}
		if status.Code(err) != codes.Unauthenticated {
			t.Errorf("%s: %v, want Unauthenticated", name, err)
		}
	}
}

func TestRequestsThatMakeNoSense(t *testing.T) {
	r := serve(t)
	c := r.as(t, r.ca.Local(t, tapper))
	for name, req := range map[string]*pb.ObserveRequest{"no limit": {Match: everything}, "no match": {Limit: 1}} {
		stream, err := c.Observe(t.Context(), req)
		if err == nil {
			_, err = stream.Recv()
		}
		if status.Code(err) != codes.InvalidArgument {
			t.Errorf("%s: %v, want InvalidArgument", name, err)
		}
	}
	if r.Active() {
		t.Error("somebody taps")
	}
}

func TestObserve(t *testing.T) {
	r := serve(t)
	req := &pb.ObserveRequest{Limit: 2, Match: everything, Extract: &pb.ObserveRequest_Extract{Extract: &pb.ObserveRequest_Extract_Http_{
		Http: &pb.ObserveRequest_Extract_Http{Extract: &pb.ObserveRequest_Extract_Http_Headers_{Headers: &pb.ObserveRequest_Extract_Http_Headers{}}},
	}}}
	stream, err := r.as(t, r.ca.Local(t, tapper)).Observe(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, r.Active)

	q := one()
	q.HTTP2 = true
	q.SourceLabels = map[string]string{"tls": "true", "client_id": other}
	q.Fields = message.Fields{{Name: "User-Agent", Value: "me"}}
	x := r.Begin(q)
	x.Head(103, nil)
	x.Head(200, message.Fields{{Name: "x", Value: "y"}})
	x.End(End{Trailer: message.Fields{{Name: "grpc-status", Value: "5"}}})
	x.End(End{})
	broken := r.Begin(one())
	if r.Begin(one()) != nil {
		t.Error("the third request is shown too")
	}
	broken.End(EndOf(&h2.ResetError{Code: 7}))

	var events []*pb.TapEvent
	for {
		e, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		events = append(events, e)
	}
	if len(events) != 5 {
		t.Fatalf("%d events, want 5: %v", len(events), events)
	}
	init, head, end := events[0].GetHttp().GetRequestInit(), events[1].GetHttp().GetResponseInit(), events[2].GetHttp().GetResponseEnd()
	if init.GetPath() != "/books/1" || init.GetHeaders().GetHeaders()[0].GetName() != ":method" || init.GetHeaders().GetHeaders()[4].GetName() != "user-agent" ||
		events[0].GetSourceMeta().GetLabels()["client_id"] != other || events[0].GetProxyDirection() != pb.TapEvent_INBOUND || events[0].GetSource().GetPort() != 4000 {
		t.Errorf("request: %v", events[0])
	}
	if head.GetHttpStatus() != 200 || head.GetId().GetStream() != init.GetId().GetStream() || len(head.GetHeaders().GetHeaders()) != 2 {
		t.Errorf("head: %v", head)
	}
	if id, next := init.GetId(), events[3].GetHttp().GetRequestInit().GetId(); id.GetStream() != 0 || next.GetStream() != 1 || id.GetBase() != next.GetBase() {
		t.Errorf("numbers: %v, then %v", id, next)
	}
	if got := events[3].GetHttp().GetRequestInit(); got.GetPath() == "" || len(got.GetHeaders().GetHeaders()) != 0 {
		t.Errorf("HTTP/1 without a header: %v", got)
	}
	if end.GetEos().GetGrpcStatusCode() != 5 || len(end.GetTrailers().GetHeaders()) != 1 || end.GetResponseBytes() != 0 {
		t.Errorf("end: %v", end)
	}
	if got := events[4].GetHttp().GetResponseEnd().GetEos().GetResetErrorCode(); got != 7 {
		t.Errorf("reset: %v", events[4])
	}
	eventually(t, func() bool { return !r.Active() })
}

func TestNobodyReads(t *testing.T) {
	r := New()
	m, _ := compile(everything)
	mine, ok := r.open(m, false, 10_000)
	if !ok {
		t.Fatal("no tap")
	}
	for range 1000 { // none of them waits
		x := r.Begin(one())
		x.Head(200, message.Fields{{Name: "grpc-status", Value: "0"}})
		x.End(End{})
	}
	if len(mine.events) != buffer {
		t.Errorf("%d events wait, want %d", len(mine.events), buffer)
	}
	r.close(mine)
	if r.Active() || r.Begin(one()) != nil {
		t.Error("still open")
	}
	(*Exchange)(nil).End(End{})
}

func BenchmarkActive(b *testing.B) {
	r := New()
	b.ReportAllocs()
	for b.Loop() {
		if r.Active() {
			b.Fatal("somebody taps")
		}
	}
}

func eventually(t *testing.T, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for late := time.After(time.Minute); !ok(); {
		select {
		case <-tick.C:
		case <-late:
			t.Fatal("not in time")
		}
	}
}
