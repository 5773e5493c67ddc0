package tap

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"runtime/debug"
	"time"

	pb "github.com/linkerd/linkerd2-proxy-api/go/tap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/weftmesh/weft/proxy/internal/detect"
	"github.com/weftmesh/weft/proxy/internal/identity"
)

// detectTimeout is how long a client may take to begin (spec/proxy.md §13).
const detectTimeout = time.Second

// Identity terminates the TLS of clients.
type Identity interface {
	ServerName() string
	ServerTLS() *tls.Config
}

// Server answers io.linkerd.proxy.tap.Tap.
type Server struct {
	Registry *Registry
	Identity Identity
	Client   string // the identity that may call; everybody else is UNAUTHENTICATED
	Log      *slog.Logger
}

// Serve answers on l until ctx ends, and closes it.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	g := grpc.NewServer(
		grpc.Creds(&meshTLS{s.Identity}),
		grpc.StreamInterceptor(s.authorize),
		grpc.UnknownServiceHandler(func(any, grpc.ServerStream) error {
			return status.Error(codes.Unimplemented, "only io.linkerd.proxy.tap.Tap is served here")
		}),
		grpc.MaxConcurrentStreams(maxTaps),
		grpc.MaxRecvMsgSize(1<<20),
		grpc.ConnectionTimeout(10*time.Second),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: time.Minute, Timeout: 20 * time.Second}),
	)
	pb.RegisterTapServer(g, &service{registry: s.Registry})
	stop := context.AfterFunc(ctx, g.Stop)
	defer stop()
	if err := g.Serve(l); err != nil && !errors.Is(err, grpc.ErrServerStopped) && ctx.Err() == nil {
		return err
	}
	return nil
}

// authorize lets the one client pass.
func (s *Server) authorize(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) (err error) {
	defer func() { // one call's bug must not end the proxy
		if cause := recover(); cause != nil {
			s.Log.Error("a tap was given up", "panic", cause, "stack", string(debug.Stack()))
			err = status.Error(codes.Internal, "the tap was given up")
		}
	}()
	p, ok := peer.FromContext(stream.Context())
	id := ""
	if ok {
		if who, ok := p.AuthInfo.(proven); ok {
			id = who.id
		}
	}
	if id == "" || id != s.Client {
		s.Log.Info("tap refused", "identity", id)
		return status.Error(codes.Unauthenticated, "tap is for "+s.Client+" only")
	}
	return next(srv, stream)
}

type service struct {
	pb.UnimplementedTapServer
	registry *Registry
}

// Observe sends events until the limit is reached or the client leaves.
func (s *service) Observe(req *pb.ObserveRequest, out grpc.ServerStreamingServer[pb.TapEvent]) error {
	if req.GetLimit() == 0 {
		return status.Error(codes.InvalidArgument, "limit must be positive")
	}
	m, err := compile(req.GetMatch())
	if err != nil {
		return status.Error(codes.InvalidArgument, "reading the match: "+err.Error())
	}
	headers := req.GetExtract().GetHttp().GetHeaders() != nil
	t, ok := s.registry.open(m, headers, req.GetLimit())
	if !ok {
		return status.Error(codes.ResourceExhausted, "too many taps are open")
	}
	defer s.registry.close(t)
	for {
		select {
		case e := <-t.events:
			if err := out.Send(e); err != nil {
				return err
			}
			continue
		case <-out.Context().Done():
			return nil
		case <-t.done:
		}
		for len(t.events) > 0 {
			if err := out.Send(<-t.events); err != nil {
				return err
			}
		}
		return nil
	}
}

// meshTLS terminates mesh TLS, and lets plaintext in without an identity, so that
// it is answered rather than cut off.
type meshTLS struct{ identity Identity }

// proven is who a client is.
type proven struct {
	credentials.CommonAuthInfo
	id string
}

// AuthType is part of credentials.AuthInfo.
func (proven) AuthType() string { return "mesh" }

func (m *meshTLS) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	hello, conn, err := detect.TLS(ctx, raw, detectTimeout)
	if err != nil {
		return nil, nil, err
	}
	plain := proven{CommonAuthInfo: credentials.CommonAuthInfo{SecurityLevel: credentials.NoSecurity}}
	if hello.SNI == "" || hello.SNI != m.identity.ServerName() {
		return conn, plain, nil
	}
	secure := tls.Server(conn, m.identity.ServerTLS())
	if err := secure.HandshakeContext(ctx); err != nil {
		return nil, nil, err
	}
	return secure, proven{
		CommonAuthInfo: credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity},
		id:             identity.PeerIdentity(secure.ConnectionState()),
	}, nil
}

func (m *meshTLS) ClientHandshake(context.Context, string, net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, net.ErrClosed // only ever a server
}

func (m *meshTLS) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "tls"}
}

func (m *meshTLS) Clone() credentials.TransportCredentials { return m }

// OverrideServerName is part of the interface; a server has none.
func (m *meshTLS) OverrideServerName(string) error { return nil }
