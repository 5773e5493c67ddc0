package serve

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	pb "github.com/linkerd/linkerd2-proxy-api/go/destination"
	pbnet "github.com/linkerd/linkerd2-proxy-api/go/net"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	"github.com/weftmesh/weft/bus"
	"github.com/weftmesh/weft/services/destination/internal/derive"
	"github.com/weftmesh/weft/services/destination/internal/ports"
	"github.com/weftmesh/weft/services/destination/internal/row/rowtest"
	"github.com/weftmesh/weft/services/destination/internal/table"
	"github.com/weftmesh/weft/services/kit/rpc"
)

// patience is how long a test waits for what must come.
const patience = time.Minute

// rig is a replica without a bus: rows go in by hand, clients ask over gRPC.
type rig struct {
	t      testing.TB
	tables *table.Table
	linked clusters
	api    *API
	reg    *prometheus.Registry
	client pb.DestinationClient
	conn   *grpc.ClientConn
}

func newRig(t testing.TB, cfg Config, dial ...grpc.DialOption) *rig {
	t.Helper()
	r := &rig{t: t, tables: table.New(), reg: prometheus.NewRegistry()}
	r.api = New(r.tables, &r.linked, derive.Config{
		ControlPlane: "linkerd", ClusterDomain: "cluster.local", TrustDomain: "cluster.local",
		UpgradeHTTP2: true, IPv6: true, Opaque: ports.Of(3306),
	}, cfg, r.reg)
	server := rpc.NewServer(r.reg, grpc.MaxConcurrentStreams(0), grpc.ForceServerCodecV2(NewCodec()))
	r.api.Register(server)
	NewExplain(r.api, copied{}).Register(server)
	lis := bufconn.Listen(64 << 10)
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve(lis)
	}()
	conn, err := grpc.NewClient("passthrough:///rig", append(dial,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return lis.DialContext(ctx) }))...)
	if err != nil {
		t.Fatal(err)
	}
	r.client, r.conn = pb.NewDestinationClient(conn), conn
	t.Cleanup(func() {
		_ = conn.Close()
		r.api.Stop()
		server.Stop()
		<-served
	})
	return r
}

func (r *rig) apply(text string) { applyTo(r.t, r.tables, text) }

func applyTo(t testing.TB, to *table.Table, text string) {
	t.Helper()
	changes, err := rowtest.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	for _, bad := range to.Apply(bus.Cut{Changes: changes, Complete: to.Synced() != nil, ObservedAt: time.Now()}) {
		t.Fatalf("%s: %v", bad.Key, bad.Err)
	}
}

// clusters are the linked ones of a rig.
type clusters struct {
	mu sync.Mutex
	m  map[string]Linked
}

func (c *clusters) Find(name string) (Linked, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	l, ok := c.m[name]
	return l, ok
}

// link makes a cluster known as l says, or unknown if l is nil.
func (r *rig) link(name string, l *Linked) {
	r.linked.mu.Lock()
	if r.linked.m == nil {
		r.linked.m = map[string]Linked{}
	}
	if delete(r.linked.m, name); l != nil {
		r.linked.m[name] = *l
	}
	r.linked.mu.Unlock()
	r.tables.Touch(table.Linked(name))
}

// getter folds a Get stream into the live set, as a proxy does.
type getter struct {
	t      testing.TB
	stream grpc.ServerStreamingClient[pb.Update]
	cancel context.CancelFunc
	live   map[string]*pb.WeightedAddr
	log    []string
}

func (r *rig) get(path, token string) *getter {
	r.t.Helper()
	ctx, cancel := context.WithCancel(r.t.Context())
	r.t.Cleanup(cancel)
	s, err := r.client.Get(ctx, &pb.GetDestination{Path: path, ContextToken: token})
	if err != nil {
		r.t.Fatal(err)
	}
	return &getter{t: r.t, stream: s, cancel: cancel, live: make(map[string]*pb.WeightedAddr)}
}

// recv takes one message and describes it: "+a +b" or "-a".
func (g *getter) recv() (string, error) {
	m, err := g.stream.Recv()
	if err != nil {
		return "", err
	}
	var words []string
	switch u := m.GetUpdate().(type) {
	case *pb.Update_Add:
		for _, wa := range u.Add.GetAddrs() {
			at := text(wa.GetAddr())
			g.live[at] = wa
			words = append(words, "+"+at)
		}
	case *pb.Update_Remove:
		for _, a := range u.Remove.GetAddrs() {
			delete(g.live, text(a))
			words = append(words, "-"+text(a))
		}
	default:
		words = append(words, fmt.Sprintf("%T", u))
	}
	line := strings.Join(words, " ")
	g.log = append(g.log, line)
	return line, nil
}

// want takes as many messages as are wanted and compares them.
func (g *getter) want(lines ...string) {
	g.t.Helper()
	for _, line := range lines {
		got, err := within(g.recv)
		if err != nil {
			g.t.Fatalf("waiting for %q: %v", line, err)
		}
		if got != line {
			g.t.Fatalf("got %q, want %q", got, line)
		}
	}
}

// until takes messages until the live set is the one wanted.
func (g *getter) until(addrs ...string) {
	g.t.Helper()
	slices.Sort(addrs)
	for {
		if slices.Equal(slices.Sorted(maps.Keys(g.live)), addrs) {
			return
		}
		if _, err := within(g.recv); err != nil {
			g.t.Fatalf("have %v, want %v: %v", slices.Sorted(maps.Keys(g.live)), addrs, err)
		}
	}
}

var errPatience = errors.New("nothing came")

// within bounds a wait on a stream. The goroutine of a wait that failed ends
// with the test's context.
func within[T any](f func() (T, error)) (T, error) {
	type result struct {
		v   T
		err error
	}
	c := make(chan result, 1)
	go func() {
		v, err := f()
		c <- result{v, err}
	}()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case r := <-c:
		return r.v, r.err
	case <-timer.C:
		var zero T
		return zero, errPatience
	}
}

// ends waits for the stream's end and returns its error, io.EOF for OK.
func (g *getter) ends() error {
	for {
		if _, err := within(g.recv); err != nil {
			return err
		}
	}
}

func (r *rig) profile(path string) grpc.ServerStreamingClient[pb.DestinationProfile] {
	r.t.Helper()
	s, err := r.client.GetProfile(r.t.Context(), &pb.GetDestination{Path: path})
	if err != nil {
		r.t.Fatal(err)
	}
	return s
}

func recvProfile(t testing.TB, s grpc.ServerStreamingClient[pb.DestinationProfile]) *pb.DestinationProfile {
	t.Helper()
	p, err := within(s.Recv)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func text(a *pbnet.TcpAddress) string {
	v := a.GetIp().GetIpv4()
	ip := netip.AddrFrom4([4]byte{byte(v >> 24), byte(v >> 16), byte(v >> 8), byte(v)})
	return fmt.Sprintf("%s:%d", ip, a.GetPort())
}

// eventually polls a condition that has no event.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("never %s", what)
		}
	}
}

func isEOF(err error) bool { return errors.Is(err, io.EOF) }
