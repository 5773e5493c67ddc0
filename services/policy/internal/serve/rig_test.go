package serve

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/linkerd/linkerd2-proxy-api/go/inbound"
	proxynet "github.com/linkerd/linkerd2-proxy-api/go/net"
	pb "github.com/linkerd/linkerd2-proxy-api/go/outbound"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/weftmesh/weft/bus"
	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
	"github.com/weftmesh/weft/services/kit/rpc"
	"github.com/weftmesh/weft/services/policy/internal/derive"
	"github.com/weftmesh/weft/services/policy/internal/table"
)

// rig is a server with its tables and a client, all in memory.
type rig struct {
	tables   *table.Tables
	server   *Server
	registry *prometheus.Registry
	inbound  inbound.InboundServerPoliciesClient
	outbound pb.OutboundPoliciesClient
	conn     *grpc.ClientConn
	stop     context.CancelFunc
	patience context.Context //nolint:containedctx // ends streams on which nothing comes
}

func cluster(t testing.TB) derive.Cluster {
	t.Helper()
	networks, err := derive.ParseNetworks([]string{"10.0.0.0/8"})
	if err != nil {
		t.Fatal(err)
	}
	return derive.Cluster{
		Networks: networks, IdentityDomain: "cluster.local", Domain: "cluster.local",
		ControlPlaneNamespace: "linkerd", DefaultPolicy: derive.Deny, EgressNamespace: "linkerd-egress",
	}
}

// start serves tables that hold the rows; no rows at all means that they are
// not complete yet.
func start(t testing.TB, cfg Config, rows ...bus.Change) *rig {
	t.Helper()
	r := &rig{tables: table.New(cluster(t)), registry: prometheus.NewRegistry()}
	if rows != nil {
		r.tables.Apply(table.Cut{Changes: rows, Complete: true})
	}
	r.server = New(r.tables, cluster(t), cfg, r.registry)
	g := rpc.NewServer(r.registry, Options()...)
	r.server.Register(g)
	lis := bufconn.Listen(1 << 16)
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = g.Serve(lis)
	}()
	conn, err := grpc.NewClient("passthrough:///policy",
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return lis.DialContext(ctx) }),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	patience, giveUp := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(giveUp)
	r.patience = patience
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = r.server.Run(ctx)
	}()
	r.stop = stop
	t.Cleanup(func() {
		stop()
		<-ended
		_ = conn.Close()
		g.Stop()
		<-served
	})
	r.conn = conn
	r.inbound, r.outbound = inbound.NewInboundServerPoliciesClient(conn), pb.NewOutboundPoliciesClient(conn)
	return r
}

func (r *rig) apply(changes ...bus.Change) {
	r.tables.Apply(table.Cut{Changes: changes, Cause: table.Cause{ObservedAt: time.Now()}})
}

// restate is a complete state: what it does not name is gone.
func (r *rig) restate(changes ...bus.Change) {
	r.tables.Apply(table.Cut{Changes: changes, Complete: true, Cause: table.Cause{ObservedAt: time.Now()}})
}

func pod(name, uid, tpl string) bus.Change {
	return bus.Change{Table: busv1.Table_TABLE_WORKLOADS, Key: bus.Key("pod", "grove", name), Value: bus.Encode(&busv1.Workload{
		Kind: busv1.Workload_KIND_POD, Namespace: "grove", Name: name, Uid: uid, Template: bus.Key("grove", tpl),
	})}
}

func template(name, controlPlane string) bus.Change {
	return bus.Change{Table: busv1.Table_TABLE_TEMPLATES, Key: bus.Key("grove", name), Value: bus.Encode(&busv1.Template{
		Namespace: "grove", ControlPlaneNamespace: controlPlane, Labels: map[string]string{"app": name},
	})}
}

func serverRow(name, protocol string) bus.Change {
	return bus.Change{Table: busv1.Table_TABLE_SERVERS, Key: bus.Key("grove", name), Value: bus.Encode(&busv1.Server{
		Namespace: "grove", Name: name, Port: 80, Pods: &busv1.Selector{}, ProxyProtocol: protocol,
	})}
}

func service(name string, port uint32, ips ...string) bus.Change {
	return bus.Change{Table: busv1.Table_TABLE_SERVICES, Key: bus.Key("grove", name), Value: bus.Encode(&busv1.Service{
		Namespace: "grove", Name: name, ClusterIps: ips, Ports: []*busv1.ServicePort{{Port: port}},
	})}
}

func removed(c bus.Change) bus.Change { return bus.Change{Table: c.Table, Key: c.Key} }

const client = `{"ns":"grove","pod":"client"}`

func byAddr(s string) *pb.TrafficSpec {
	a := netip.MustParseAddrPort(s)
	b := a.Addr().As4()
	ip := uint32(b[0])<<24 | uint32(b[1])<<16 | uint32(b[2])<<8 | uint32(b[3])
	return &pb.TrafficSpec{SourceWorkload: client, Target: &pb.TrafficSpec_Addr{Addr: &proxynet.TcpAddress{
		Ip: &proxynet.IPAddress{Ip: &proxynet.IPAddress_Ipv4{Ipv4: ip}}, Port: uint32(a.Port()),
	}}}
}

func byName(authority string) *pb.TrafficSpec {
	return &pb.TrafficSpec{SourceWorkload: client, Target: &pb.TrafficSpec_Authority{Authority: authority}}
}

func (r *rig) watchPort(t testing.TB, who string, port uint32) grpc.ServerStreamingClient[inbound.Server] {
	t.Helper()
	s, err := r.inbound.WatchPort(r.patience, &inbound.PortSpec{Workload: who, Port: port})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (r *rig) watch(t testing.TB, spec *pb.TrafficSpec) grpc.ServerStreamingClient[pb.OutboundPolicy] {
	t.Helper()
	s, err := r.outbound.Watch(r.patience, spec)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func recv[M any](t testing.TB, s grpc.ServerStreamingClient[M]) *M {
	t.Helper()
	m, err := s.Recv()
	if err != nil {
		t.Fatalf("Recv: %v", err)
	}
	return m
}

// wantEnd expects the stream to end, with OK if the code is OK.
func wantEnd[M any](t testing.TB, s grpc.ServerStreamingClient[M], code codes.Code) {
	t.Helper()
	m, err := s.Recv()
	if errors.Is(err, io.EOF) {
		err = nil
	}
	if m != nil || status.Code(err) != code {
		t.Errorf("Recv() = %v, %v; want the end with %v", m, err, code)
	}
}

// value reads a counter, a gauge, or the count of a histogram.
func value(t testing.TB, reg *prometheus.Registry, name, api string) float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() != name || api != "" && m.GetLabel()[0].GetValue() != api {
				continue
			}
			switch {
			case m.GetCounter() != nil:
				return m.GetCounter().GetValue()
			case m.GetGauge() != nil:
				return m.GetGauge().GetValue()
			}
			return float64(m.GetHistogram().GetSampleCount())
		}
	}
	t.Fatalf("there is no metric %s", name)
	return 0
}
