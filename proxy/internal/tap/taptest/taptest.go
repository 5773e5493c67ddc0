// Package taptest taps a proxy in tests, as the tap service of Linkerd viz does.
package taptest

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
	"google.golang.org/grpc/credentials"

	"github.com/weftmesh/weft/proxy/internal/identity"
	"github.com/weftmesh/weft/proxy/internal/tap"
)

// Client is the identity that may tap.
const Client = "tap.linkerd-viz.serviceaccount.identity.linkerd.cluster.local"

// Observe taps the registry, through a server with the identity own. It returns
// when the tap is open; the function that it returns waits until limit requests
// have ended, and gives the events.
func Observe(t testing.TB, r *tap.Registry, own, as *identity.Local, limit uint32) func() []*pb.TapEvent {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	s := &tap.Server{Registry: r, Identity: own, Client: Client, Log: slog.New(slog.DiscardHandler)}
	done := make(chan struct{})
	go func() { defer close(done); _ = s.Serve(ctx, l) }()
	t.Cleanup(func() { cancel(); <-done })
	stream, err := Dial(t, l.Addr().String(), as, own.Name()).Observe(t.Context(), &pb.ObserveRequest{
		Limit: limit, Match: &pb.ObserveRequest_Match{Match: &pb.ObserveRequest_Match_All{All: &pb.ObserveRequest_Match_Seq{}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for late := time.After(time.Minute); !r.Active(); {
		select {
		case <-tick.C:
		case <-late:
			t.Fatal("the tap has not opened")
		}
	}
	return func() (events []*pb.TapEvent) {
		for {
			e, err := stream.Recv()
			if errors.Is(err, io.EOF) {
				return events
			}
			if err != nil {
				t.Fatal(err)
			}
			events = append(events, e)
		}
	}
}

// Dial connects to a proxy's tap, as the identity.
func Dial(t testing.TB, addr string, as *identity.Local, proxy string) pb.TapClient {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+addr, grpc.WithTransportCredentials(&mesh{as.ClientTLS(proxy, proxy)}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return pb.NewTapClient(conn)
}

// mesh is gRPC's TLS without its demand for an ALPN.
type mesh struct{ config *tls.Config }

type info struct{ credentials.CommonAuthInfo }

// AuthType is part of credentials.AuthInfo.
func (info) AuthType() string { return "mesh" }

func (m *mesh) ClientHandshake(ctx context.Context, _ string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	c := tls.Client(raw, m.config)
	return c, info{credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity}}, c.HandshakeContext(ctx)
}

func (m *mesh) ServerHandshake(net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, net.ErrClosed
}

func (m *mesh) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "tls"}
}
func (m *mesh) Clone() credentials.TransportCredentials { return m }
func (m *mesh) OverrideServerName(string) error         { return nil }
