// Package simtest runs policy's own rooms, from the log to a stream, on a bus
// that a test holds in its hands. It is the one door by which the simulation
// enters this module; it is for tests only.
package simtest

import (
	"context"
	"fmt"
	"net/netip"
	"sync"

	"github.com/linkerd/linkerd2-proxy-api/go/inbound"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/weftmesh/weft/bus"
	"github.com/weftmesh/weft/services/kit/rpc/rpctest"
	"github.com/weftmesh/weft/services/policy/internal/derive"
	"github.com/weftmesh/weft/services/policy/internal/feed"
	"github.com/weftmesh/weft/services/policy/internal/serve"
	"github.com/weftmesh/weft/services/policy/internal/table"
)

// Front is one policy process.
type Front struct {
	log  *bus.Reader
	feed *feed.Feed
	api  *serve.Server
	// inbound is the API as a gRPC server would have it.
	inbound inbound.InboundServerPoliciesServer
}

// New makes a process that is on the bus by t; Run runs it.
func New(t bus.Transport) *Front {
	cluster := cluster()
	tables, reg := table.New(cluster), prometheus.NewRegistry()
	log := bus.NewReader(t, bus.ReaderConfig{})
	f := &Front{log: log, feed: feed.New(log, tables, reg), api: serve.New(tables, cluster, serve.Config{}, reg)}
	f.api.Register(registrar{f})
	return f
}

func cluster() derive.Cluster {
	return derive.Cluster{
		Networks: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}, IdentityDomain: "cluster.local", Domain: "cluster.local",
		ControlPlaneNamespace: "linkerd", DefaultPolicy: derive.AllUnauthenticated, EgressNamespace: "linkerd-egress",
	}
}

// registrar keeps the API that the simulation asks.
type registrar struct{ front *Front }

// RegisterService implements grpc.ServiceRegistrar.
func (r registrar) RegisterService(_ *grpc.ServiceDesc, impl any) {
	if in, ok := impl.(inbound.InboundServerPoliciesServer); ok {
		r.front.inbound = in
	}
}

// Run runs the process until ctx ends.
func (f *Front) Run(ctx context.Context) {
	var wg sync.WaitGroup
	for _, part := range []func(context.Context) error{f.log.Run, f.feed.Run, f.api.Run} {
		wg.Go(func() { _ = part(ctx) })
	}
	wg.Wait()
}

// WatchPort is a proxy's stream of what its workload accepts: deliver gets each
// message, in order and one at a time, until ctx ends or the process does.
func (f *Front) WatchPort(ctx context.Context, workload string, port uint32, deliver func(*inbound.Server)) error {
	s := &rpctest.Stream{Ctx: ctx, Deliver: func(sent any) error {
		a, ok := sent.(*derive.Answer)
		if !ok {
			return fmt.Errorf("sending a %T", sent)
		}
		m := new(inbound.Server)
		if err := proto.Unmarshal(a.Bytes(), m); err != nil {
			return fmt.Errorf("reading a policy: %w", err)
		}
		deliver(m)
		return nil
	}}
	return f.inbound.WatchPort(&inbound.PortSpec{Workload: workload, Port: port}, &grpc.GenericServerStream[inbound.PortSpec, inbound.Server]{ServerStream: s})
}
