// Package serve answers proxies over gRPC. Each stream remembers only what its
// client has been sent; a change wakes it, and it sends the difference to the
// newest answer. So a client that is slow misses steps in between, never the
// end, and costs nobody else anything.
package serve

import (
	"context"
	"log/slog"
	"time"

	pb "github.com/linkerd/linkerd2-proxy-api/go/destination"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weftmesh/weft/services/destination/internal/ask"
	"github.com/weftmesh/weft/services/destination/internal/derive"
	"github.com/weftmesh/weft/services/destination/internal/row"
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
	crew   *crew
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
	a := &API{table: t, from: from, derive: d, config: c, count: m, views: newViews(from, d, m), door: newDoor(c, reg), crew: newCrew(c.blocked())}
	reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "weft_destination_views",
		Help: "Answers to Get that are held, each shared by all streams that ask the same from the same place.",
	}, func() float64 { return float64(a.views.size()) }))
	return a
}

// Register adds the API to a server, which must use the Codec.
func (a *API) Register(s grpc.ServiceRegistrar) {
	// The generated handlers would read the question in the goroutine that then
	// waits for as long as the stream lives, and its stack would never be small
	// again. So all that is deep is left to the crew.
	handler := func(open opener) grpc.StreamHandler {
		return func(_ any, ss grpc.ServerStream) error { return a.stream(open, nil, ss) }
	}
	desc := pb.Destination_ServiceDesc
	desc.Streams = []grpc.StreamDesc{
		{StreamName: "Get", Handler: handler(a.openGet), ServerStreams: true},
		{StreamName: "GetProfile", Handler: handler(a.openProfile), ServerStreams: true},
	}
	s.RegisterService(&desc, a)
}

// Stop ends every stream with OK, so that clients go to another replica.
func (a *API) Stop() { a.crew.stop() }

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
	return a.stream(a.openGet, dest, ss)
}

// GetProfile streams what is known of a destination as a whole.
func (a *API) GetProfile(dest *pb.GetDestination, ss pb.Destination_GetProfileServer) error {
	return a.stream(a.openProfile, dest, ss)
}

// openGet admits a Get and says how it is answered.
func (a *API) openGet(s *stream, dest *pb.GetDestination) error {
	target, client, err := a.begin(s.ss.Context(), dest)
	if err != nil {
		return err
	}
	if target.IP.IsValid() {
		return status.Errorf(codes.InvalidArgument, "IP queries not supported by Get API: host=%s", target.IP)
	}
	if s.place, err = a.door.enter(visitorOf(s.ss.Context(), client)); err != nil {
		return err
	}
	service := a.table.Service(table.ServiceKey(target.Namespace, target.Name))
	if r := derive.Refused(service, target.Namespace, target.Name, short(dest.GetPath())); r != nil {
		return refused(r).status
	}
	s.call = a.count.get
	s.from = &endpoints{
		stream: s, node: row.NameOf(client.Node), path: short(dest.GetPath()),
		// The row's own key: what the client wrote need not be kept.
		key: viewKey{question: question{service: service.Key, instance: target.Instance, port: target.Port}},
	}
	return nil
}

// openProfile admits a GetProfile and says how it is answered.
func (a *API) openProfile(s *stream, dest *pb.GetDestination) error {
	target, client, err := a.begin(s.ss.Context(), dest)
	if err != nil {
		return err
	}
	if s.place, err = a.door.enter(visitorOf(s.ss.Context(), client)); err != nil {
		return err
	}
	s.call = a.profileCall(target)
	s.from = &profile{stream: s, target: target, namespace: client.Namespace}
	return nil
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
