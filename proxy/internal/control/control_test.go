package control

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	pb "github.com/linkerd/linkerd2-proxy-api/go/identity"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/weftmesh/weft/proxy/internal/config"
	"github.com/weftmesh/weft/proxy/internal/identity/identitytest"
)

// script plays what each opening of a stream gives: messages, then an error.
type script struct {
	ctx  context.Context
	says []int
	end  error
	hang bool
}

func (s *script) Recv() (int, error) {
	if len(s.says) > 0 {
		n := s.says[0]
		s.says = s.says[1:]
		return n, nil
	}
	if s.hang {
		<-s.ctx.Done()
		return 0, context.Cause(s.ctx)
	}
	return 0, s.end
}

func play(scripts ...script) (open func(context.Context) (Stream[int], error), opened *[]time.Time) {
	opened = new([]time.Time)
	return func(ctx context.Context) (Stream[int], error) {
		*opened = append(*opened, time.Now())
		if len(scripts) == 0 {
			return &script{ctx: ctx, hang: true}, nil
		}
		s := scripts[0]
		scripts = scripts[1:]
		s.ctx = ctx
		return &s, nil
	}, opened
}

func TestWatchOpensAgainOnAnyEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		open, opened := play(
			script{end: status.Error(codes.Unavailable, "down")},
			script{says: []int{1, 2}, end: io.EOF},
			script{end: status.Error(codes.NotFound, "not any more")}, // fatal only before anything was received
			script{says: []int{3}, end: status.Error(codes.Internal, "reset")},
		)
		var got []int
		err := Watch(ctx, "test", open, func(n int) { got = append(got, n) })
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Watch = %v", err)
		}
		if !slices.Equal(got, []int{1, 2, 3}) || len(*opened) != 5 {
			t.Errorf("received %v in %d streams", got, len(*opened))
		}
	})
}

func TestWatchGivesUpOnWhatCannotHelp(t *testing.T) {
	for _, code := range []codes.Code{codes.NotFound, codes.InvalidArgument, codes.FailedPrecondition} {
		open, _ := play(script{end: status.Error(code, "no")})
		err := Watch(t.Context(), "test", open, func(int) {})
		if status.Code(err) != code {
			t.Errorf("Watch = %v, want %v", err, code)
		}
	}
	open, _ := play(script{says: []int{1}, end: status.Error(codes.InvalidArgument, "no")})
	err := WatchWith(t.Context(), Options{Fatal: fatal, Always: true}, open, func(int) {})
	if status.Code(err) != codes.InvalidArgument {
		t.Errorf("Always: %v", err)
	}
}

func TestWatchBacksOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		scripts := make([]script, 12)
		for i := range scripts {
			scripts[i].end = io.EOF
		}
		open, opened := play(scripts...)
		_ = Watch(ctx, "test", open, func(int) {})
		for i := 1; i < len(*opened); i++ {
			least := min(100*time.Millisecond<<(i-1), 10*time.Second)
			if gap := (*opened)[i].Sub((*opened)[i-1]); gap < least || gap > least*3/2 {
				t.Errorf("attempt %d after %v, want %v and up to half more", i, gap, least)
			}
		}
	})
}

func TestLimitsEndStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Minute)
		defer cancel()
		open, opened := play(script{hang: true}, script{says: []int{1}, hang: true}, script{says: []int{1}, hang: true})
		_ = WatchWith(ctx, Options{Limits: config.Streams{Initial: 3 * time.Second, Idle: 5 * time.Minute, Lifetime: time.Hour}}, open, func(int) {})
		var gaps []time.Duration
		for i := 1; i < len(*opened); i++ {
			gaps = append(gaps, (*opened)[i].Sub((*opened)[i-1]).Round(10*time.Second))
		}
		want := []time.Duration{0, 5 * time.Minute, 5 * time.Minute, 0}
		if len(gaps) < 4 || !slices.Equal(gaps[:4], want) {
			t.Errorf("streams lasted %v, want %v", gaps, want)
		}
	})
}

func TestPlaintextOnlyOnLoopback(t *testing.T) {
	if _, err := Dial(t.Context(), config.Svc{Addr: "10.0.0.1:8086"}, nil); err == nil {
		t.Error("an address elsewhere without an identity")
	}
	ca := identitytest.New(t)
	if _, err := Dial(t.Context(), config.Svc{Addr: "10.0.0.1:8086"}, ca.Local(t, "me.example")); err == nil {
		t.Error("an address elsewhere without a name")
	}
}

func TestDialReplicas(t *testing.T) {
	ca := identitytest.New(t)
	svc := config.Svc{Addr: "127.0.0.1:1," + ca.Serve(t)} // the first is down
	conn, err := Dial(t.Context(), svc, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, err = pb.NewIdentityClient(conn).Certify(t.Context(), &pb.CertifyRequest{}, grpc.WaitForReady(true))
	if code := status.Code(err); code != codes.Unknown { // it answers, if only with an error
		t.Errorf("Certify: %v", err)
	}
}

// whoServer says who called.
type whoServer struct {
	pb.UnimplementedIdentityServer
	who chan string
}

func (s whoServer) Certify(ctx context.Context, _ *pb.CertifyRequest) (*pb.CertifyResponse, error) {
	p, _ := peer.FromContext(ctx)
	s.who <- p.AuthInfo.(credentials.TLSInfo).State.PeerCertificates[0].DNSNames[0]
	return &pb.CertifyResponse{}, nil
}

// A mesh proxy in front of a service selects no ALPN; gRPC must do without.
func TestMutualTLSWithoutALPN(t *testing.T) {
	ca := identitytest.New(t)
	me, dst := ca.Local(t, "me.example"), ca.Local(t, "dst.example")
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	who := make(chan string, 1)
	srv := grpc.NewServer(grpc.Creds(serverTLS{meshTLS{config: dst.ServerTLS()}}))
	pb.RegisterIdentityServer(srv, whoServer{who: who})
	go func() { _ = srv.Serve(l) }()
	defer srv.Stop()

	call := func(name string) error {
		creds := meshTLS{config: me.ClientTLS(name, name)}
		conn, err := grpc.NewClient("passthrough:///"+l.Addr().String(), grpc.WithTransportCredentials(creds))
		if err != nil {
			return err
		}
		defer conn.Close()
		_, err = pb.NewIdentityClient(conn).Certify(t.Context(), &pb.CertifyRequest{})
		return err
	}
	if err := call("dst.example"); err != nil {
		t.Fatal(err)
	}
	if got := <-who; got != "me.example" {
		t.Errorf("the service saw %s", got)
	}
	if err := call("other.example"); status.Code(err) != codes.Unavailable {
		t.Errorf("a service that cannot prove its name: %v", err)
	}
}
