// Package serve answers proxies over gRPC. Each stream remembers only what its
// client has been sent; a change wakes it, and it sends the difference to the
// newest answer. So a client that is slow misses steps in between, never the
// end, and costs nobody else anything.
package serve

import (
	"context"
	"log/slog"
	"sync"
	"time"

	pb "github.com/linkerd/linkerd2-proxy-api/go/destination"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weftmesh/weft/services/destination/internal/ask"
	"github.com/weftmesh/weft/services/destination/internal/derive"
	"github.com/weftmesh/weft/services/destination/internal/table"
	"github.com/weftmesh/weft/services/kit/obs"
)

// Config bounds what a client may cost.
type Config struct {
	Blocked       time.Duration `help:"how long a client may take nothing before its stream is ended; 0 means 30s"`
	ClientStreams int           `help:"streams that one client may have open, on any number of connections; 0 means 10000"`
	Streams       int           `help:"streams that all clients together may have open; 0 means 150000"`
}

func (c Config) blocked() time.Duration {
	if c.Blocked <= 0 {
		return 30 * time.Second
	}
	return c.Blocked
}

// API is the service io.linkerd.proxy.destination.Destination.
type API struct {
	pb.UnimplementedDestinationServer

	table  *table.Table
	from   origin
	derive derive.Config
	config Config
	views  *views
	count  *metrics
	door   *door

	stop    chan struct{}
	stopped sync.Once
}

var _ pb.DestinationServer = (*API)(nil)

// New makes the API. Nothing is answered before the table is synced. Linked may
// be nil where no cluster is.
func New(t *table.Table, linked Clusters, d derive.Config, c Config, reg prometheus.Registerer) *API {
	if linked == nil {
		linked = nobody{}
	}
	m := newMetrics(reg)
	from := origin{here: t, clusters: linked}
	a := &API{table: t, from: from, derive: d, config: c, count: m, views: newViews(from, d, m), door: newDoor(c, reg), stop: make(chan struct{})}
	reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "weft_destination_views",
		Help: "Answers to Get that are held, each shared by all streams that ask the same from the same place.",
	}, func() float64 { return float64(a.views.size()) }))
	return a
}

// Register adds the API to a server, which must use the Codec.
func (a *API) Register(s grpc.ServiceRegistrar) { pb.RegisterDestinationServer(s, a) }

// Stop ends every stream with OK, so that clients go to another replica.
func (a *API) Stop() { a.stopped.Do(func() { close(a.stop) }) }

// refusal ends a stream with a status.
type refusal struct{ status error }

func (r *refusal) Error() string { return r.status.Error() }

// refused gives a reason its gRPC code (spec §2.1, §4.1).
func refused(r *derive.Refusal) *refusal {
	code := codes.Internal
	switch r.Reason {
	case derive.Missing:
		code = codes.NotFound
	case derive.Invalid:
		code = codes.InvalidArgument
	case derive.Conflict:
		code = codes.FailedPrecondition
	case derive.Unready:
		code = codes.Unavailable
	}
	return &refusal{status.Error(code, r.Text)}
}

// begin does what both calls start with: refuse while what is missing is only
// unknown, and read what is asked.
func (a *API) begin(ctx context.Context, dest *pb.GetDestination) (ask.Target, ask.Client, error) {
	select {
	case <-a.stop:
		return ask.Target{}, ask.Client{}, status.Error(codes.Unavailable, "this replica is stopping")
	default:
	}
	if err := a.table.Synced(); err != nil {
		return ask.Target{}, ask.Client{}, status.Error(codes.Unavailable, err.Error())
	}
	target, err := ask.Authority(dest.GetPath(), a.derive.ClusterDomain)
	if err != nil {
		slog.DebugContext(ctx, "authority refused", obs.Error(err))
		return target, ask.Client{}, status.Error(codes.InvalidArgument, "Invalid authority: "+short(dest.GetPath()))
	}
	client, err := ask.Token(dest.GetContextToken())
	if err != nil {
		a.count.tokens.Inc()
		slog.DebugContext(ctx, "context token ignored", obs.Error(err))
	}
	return target, client, nil
}

// Get streams the endpoints of a Service.
func (a *API) Get(dest *pb.GetDestination, ss pb.Destination_GetServer) error {
	target, client, err := a.begin(ss.Context(), dest)
	if err != nil {
		return err
	}
	if target.IP.IsValid() {
		return status.Errorf(codes.InvalidArgument, "IP queries not supported by Get API: host=%s", target.IP)
	}
	leave, err := a.door.enter(visitorOf(ss.Context(), client))
	if err != nil {
		return err
	}
	defer leave()
	key := table.ServiceKey(target.Namespace, target.Name)
	if r := derive.Refused(a.table.Service(key), target.Namespace, target.Name, short(dest.GetPath())); r != nil {
		return refused(r).status
	}
	watch := table.NewWatch()
	from := &endpoints{api: a, client: client, watch: watch, path: short(dest.GetPath()), key: viewKey{service: key, instance: target.Instance, port: target.Port}}
	defer from.close()
	return (&stream{api: a, call: a.count.get, ss: ss, watch: watch, from: from}).run()
}

// GetProfile streams what is known of a destination as a whole.
func (a *API) GetProfile(dest *pb.GetDestination, ss pb.Destination_GetProfileServer) error {
	target, client, err := a.begin(ss.Context(), dest)
	if err != nil {
		return err
	}
	leave, err := a.door.enter(visitorOf(ss.Context(), client))
	if err != nil {
		return err
	}
	defer leave()
	watch := table.NewWatch()
	from := &profile{api: a, watch: watch, target: target, client: client}
	return (&stream{api: a, call: a.profileCall(target), ss: ss, watch: watch, from: from}).run()
}

// profileCall is what a GetProfile counts as: Linkerd counts profiles of
// Services and of single endpoints apart.
func (a *API) profileCall(target ask.Target) *callMetrics {
	if target.Instance != "" || target.IP.IsValid() && len(a.table.Address(target.IP).Services) == 0 {
		return a.count.workload
	}
	return a.count.profile
}

// short keeps what a client wrote from filling an error or a log.
func short(path string) string {
	const most = 300
	if len(path) > most {
		return path[:most] + "…"
	}
	return path
}
