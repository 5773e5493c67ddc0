package control

import (
	"context"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	destpb "github.com/linkerd/linkerd2-proxy-api/go/destination"
	"google.golang.org/grpc"

	"github.com/weftmesh/weft/proxy/internal/config"
)

// replica is a destination server behind a road that can go dark: what is sent is
// taken and leads nowhere, as with a node that has lost its network.
type replica struct {
	destpb.UnimplementedDestinationServer
	addr string

	mu    sync.Mutex
	dark  chan struct{} // closed when it is
	asked int
}

func (r *replica) Get(_ *destpb.GetDestination, s grpc.ServerStreamingServer[destpb.Update]) error {
	r.mu.Lock()
	r.asked++
	r.mu.Unlock()
	if err := s.Send(&destpb.Update{}); err != nil {
		return err
	}
	<-s.Context().Done()
	return nil
}

func (r *replica) times() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.asked
}

func newReplica(t *testing.T) *replica {
	t.Helper()
	r := &replica{dark: make(chan struct{})}
	listen := func() net.Listener {
		l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		return l
	}
	server, road := listen(), listen()
	srv := grpc.NewServer()
	destpb.RegisterDestinationServer(srv, r)
	go func() { _ = srv.Serve(server) }()
	t.Cleanup(srv.Stop)
	r.addr = road.Addr().String()
	go func() {
		for {
			near, err := road.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { _ = near.Close() })
			far, err := new(net.Dialer).DialContext(t.Context(), "tcp", server.Addr().String())
			if err != nil {
				return
			}
			t.Cleanup(func() { _ = far.Close() })
			go r.carry(near, far)
			go r.carry(far, near)
		}
	}()
	return r
}

// carry copies until it is dark, and then forgets what it reads.
func (r *replica) carry(to io.Writer, from io.Reader) {
	buf := make([]byte, 4<<10)
	for {
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		select {
		case <-r.dark:
		default:
			_, _ = to.Write(buf[:n])
		}
	}
}

// A replica whose node has lost its network says nothing, not even that it is gone.
// Those who ask anew are answered by another within seconds (complaint F12).
func TestDarkReplica(t *testing.T) {
	a, b := newReplica(t), newReplica(t)
	conn, err := Dial(t.Context(), config.Svc{Addr: a.addr + "," + b.addr}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	client := destpb.NewDestinationClient(conn)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	watch := func() <-chan struct{} {
		first := make(chan struct{})
		var once sync.Once
		wg.Go(func() {
			_ = WatchWith(ctx, Options{Limits: config.Streams{Initial: time.Second, Idle: time.Hour, Lifetime: time.Hour}},
				func(ctx context.Context) (Stream[*destpb.Update], error) {
					return client.Get(ctx, &destpb.GetDestination{})
				},
				func(*destpb.Update) { once.Do(func() { close(first) }) })
		})
		return first
	}
	for a.times() == 0 || b.times() == 0 { // both are connected
		<-watch()
	}
	was := a.times()
	close(a.dark)
	began := time.Now()
	var all []<-chan struct{}
	for range 4 { // of which half come to the dark one first
		all = append(all, watch())
	}
	for i, first := range all {
		select {
		case <-first:
		case <-time.After(time.Minute):
			t.Fatalf("the stream %d of 4 is not answered", i)
		}
	}
	// Five seconds, and what a busy machine takes.
	if took := time.Since(began); took > 15*time.Second {
		t.Errorf("they were answered after %v", took)
	}
	if a.times() != was {
		t.Error("the dark one has heard of them")
	}
}
