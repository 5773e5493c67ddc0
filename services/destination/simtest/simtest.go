// Package simtest runs destination's own rooms, from the log to a stream, on a
// bus that a test holds in its hands. It is the one door by which the
// simulation enters this module; it is for tests only.
package simtest

import (
	"context"
	"fmt"
	"sync"

	pb "github.com/linkerd/linkerd2-proxy-api/go/destination"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/weftmesh/weft/bus"
	"github.com/weftmesh/weft/services/destination/internal/derive"
	"github.com/weftmesh/weft/services/destination/internal/feed"
	"github.com/weftmesh/weft/services/destination/internal/serve"
	"github.com/weftmesh/weft/services/destination/internal/table"
	"github.com/weftmesh/weft/services/kit/rpc/rpctest"
)

// Front is one destination process.
type Front struct {
	log  *bus.Reader
	feed *feed.Feed
	api  *serve.API
}

// New makes a process that is on the bus by t; Run runs it.
func New(t bus.Transport) *Front {
	tables, reg := table.New(), prometheus.NewRegistry()
	log := bus.NewReader(t, bus.ReaderConfig{})
	config := derive.Config{ControlPlane: "linkerd", ClusterDomain: "cluster.local", TrustDomain: "cluster.local", UpgradeHTTP2: true, IPv6: true}
	return &Front{
		log:  log,
		feed: feed.New(log, tables, feed.NewMetrics(reg)),
		api:  serve.New(tables, alone{}, config, serve.Config{}, reg),
	}
}

// alone is a cluster that is linked with no other.
type alone struct{}

// Find implements serve.Clusters.
func (alone) Find(string) (serve.Linked, bool) { return serve.Linked{}, false }

// Run runs the process until ctx ends.
func (f *Front) Run(ctx context.Context) {
	var wg sync.WaitGroup
	for _, part := range []func(context.Context) error{f.log.Run, f.feed.Run} {
		wg.Go(func() { _ = part(ctx) })
	}
	<-ctx.Done()
	f.api.Stop()
	wg.Wait()
}

// Get is a client's stream of endpoints: deliver gets each message, in order
// and one at a time, until ctx ends or the process does.
func (f *Front) Get(ctx context.Context, path string, deliver func(*pb.Update)) error {
	s := &rpctest.Stream{Ctx: ctx, Deliver: func(sent any) error {
		raw, err := serve.NewCodec().Marshal(sent)
		if err != nil {
			return err
		}
		defer raw.Free()
		m := new(pb.Update)
		if err := proto.Unmarshal(raw.Materialize(), m); err != nil {
			return fmt.Errorf("reading an update: %w", err)
		}
		deliver(m)
		return nil
	}}
	return f.api.Get(&pb.GetDestination{Path: path}, &grpc.GenericServerStream[pb.GetDestination, pb.Update]{ServerStream: s})
}
