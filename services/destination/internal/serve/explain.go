package serve

import (
	"context"
	"net/netip"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/weftmesh/weft/bus"
	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
	explainv1 "github.com/weftmesh/weft/proto/gen/weft/explain/v1"
	"github.com/weftmesh/weft/services/destination/internal/ask"
	"github.com/weftmesh/weft/services/destination/internal/derive"
	"github.com/weftmesh/weft/services/destination/internal/row"
	"github.com/weftmesh/weft/services/destination/internal/table"
)

// maxSteps bounds an explanation: a person reads no more, and a message holds no
// more.
const maxSteps = 2000

// Log is the replica's copy of the log: it has the UIDs, which answers do not
// read and so tables do not keep.
type Log interface {
	Row(table busv1.Table, key string) (value []byte, ok bool)
	Status() bus.Status
}

// explainer is the service weft.explain.v1.ExplainService. The module of protos
// has no gRPC in it, so its description stands here.
type explainer interface {
	Explain(ctx context.Context, req *explainv1.ExplainRequest) (*explainv1.ExplainResponse, error)
}

var explainService = grpc.ServiceDesc{
	ServiceName: "weft.explain.v1.ExplainService",
	HandlerType: (*explainer)(nil),
	Methods: []grpc.MethodDesc{{MethodName: "Explain", Handler: func(srv any, ctx context.Context, decode func(any) error, through grpc.UnaryServerInterceptor) (any, error) {
		req := &explainv1.ExplainRequest{}
		if err := decode(req); err != nil {
			return nil, err
		}
		call := func(ctx context.Context, req any) (any, error) {
			return srv.(explainer).Explain(ctx, req.(*explainv1.ExplainRequest))
		}
		if through == nil {
			return call(ctx, req)
		}
		info := &grpc.UnaryServerInfo{Server: srv, FullMethod: "/weft.explain.v1.ExplainService/Explain"}
		return through(ctx, req, info, call)
	}}},
	Metadata: "weft/explain/v1/explain.proto",
}

// Explain answers why a proxy is told what it is told. Register it beside the API.
type Explain struct {
	api *API
	log Log
}

var _ explainer = (*Explain)(nil)

// NewExplain makes the service. It reads what the API reads.
func NewExplain(a *API, log Log) *Explain { return &Explain{a, log} }

// Register adds the service to a server.
func (e *Explain) Register(s grpc.ServiceRegistrar) { s.RegisterService(&explainService, e) }

// Explain implements the service.
func (e *Explain) Explain(_ context.Context, req *explainv1.ExplainRequest) (*explainv1.ExplainResponse, error) {
	if err := e.api.table.Synced(); err != nil {
		return nil, status.Error(codes.Unavailable, err.Error())
	}
	target, err := ask.Authority(req.GetDestination(), e.api.derive.ClusterDomain)
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, "Invalid authority: "+short(req.GetDestination()))
	}
	st := e.log.Status()
	out := &answer{log: e.log, to: &explainv1.ExplainResponse{Epoch: st.Epoch, Seq: st.Seq, Stale: st.Stale, AgeNs: st.Age.Nanoseconds()}}
	client := e.client(out, req)
	if target.IP.IsValid() {
		e.address(out, target, req.GetClientNamespace())
		return out.to, nil
	}
	s := e.api.table.Service(table.ServiceKey(target.Namespace, target.Name))
	if r := derive.Refused(s, target.Namespace, target.Name, short(req.GetDestination())); r != nil {
		return nil, refused(r).status
	}
	out.add(derive.Step{About: "service", Rule: "the name is that of a Service", Objects: []derive.Object{derive.ServiceObject(s.Namespace, s.Name)}})
	e.endpoints(out, s, derive.Query{Port: target.Port, Instance: target.Instance}, client)
	if target.Instance == "" {
		e.profile(out, s.Namespace, s.Name, target.Port, req.GetClientNamespace())
	}
	return out.to, nil
}

// client finds out where the client is.
func (e *Explain) client(out *answer, req *explainv1.ExplainRequest) derive.Client {
	if req.GetClientPod() == "" {
		out.add(derive.Step{About: "client", Rule: "nothing is known of it, so no zone and no node are its own"})
		return derive.Client{}
	}
	p := e.api.table.Pod(req.GetClientNamespace(), req.GetClientPod())
	if p.Workload == nil {
		out.add(derive.Step{About: "client", Rule: "there is no such pod, so no zone and no node are its own"})
		return derive.Client{}
	}
	c := derive.Client{Node: p.Workload.Node.Value()}
	c.Zone = e.api.table.Zone(c.Node)
	rule := "it runs on node " + c.Node + ", whose zone is not known"
	if c.Zone != "" {
		rule = "it runs on node " + c.Node + " in zone " + c.Zone
	}
	objects := []derive.Object{derive.WorkloadObject(p.Workload)}
	if c.Node == "" {
		rule = "it has no node yet"
	} else {
		objects = append(objects, derive.NodeObject(c.Node))
	}
	out.add(derive.Step{About: "client", Rule: rule, Objects: objects})
	return c
}

// endpoints explains Get, member by member.
func (e *Explain) endpoints(out *answer, s *row.Service, q derive.Query, client derive.Client) {
	all := e.api.from.parts(s.Key)
	switch {
	case s.Federated:
		out.add(derive.Step{About: "federated", Rule: "its annotations name the Services that it is the union of", Objects: []derive.Object{derive.ServiceObject(s.Namespace, s.Name)}})
	case s.Remote != nil:
		out.add(derive.Step{About: "remote", Rule: "its labels name the Service of another cluster that it stands for", Objects: []derive.Object{derive.ServiceObject(s.Namespace, s.Name)}})
	}
	members, _ := all.join()
	for i, p := range all {
		member := derive.ServiceObject(s.Namespace, p.Service)
		member.Cluster = p.Cluster
		rule := ""
		switch {
		case p.Cluster == "" && !s.Federated:
		case p.Cluster == "":
			rule = "a member in this cluster"
		case !p.ok:
			rule = "nobody linked cluster " + p.Cluster + " here"
		case p.table == nil:
			rule = "cluster " + p.Cluster + " is linked, and has not been read yet: unknown, not empty"
		default:
			rule = "a Service of linked cluster " + p.Cluster + ", whose identities end in " + p.trust
		}
		if rule != "" {
			out.add(derive.Step{About: "member", Rule: rule, Objects: []derive.Object{member}})
		}
		if p.table != nil {
			out.add(e.api.derive.ExplainEndpoints(members[i], p.Cluster, q, client)...)
		}
	}
}

// profile explains GetProfile of a Service.
func (e *Explain) profile(out *answer, namespace, name string, port uint16, client string) {
	namespaces, full := e.api.derive.ProfileNames(namespace, name, client)
	keys := make([]string, len(namespaces))
	for i, ns := range namespaces {
		keys[i] = table.ProfileKey(ns, full)
	}
	if facts := e.api.table.Profile(table.ServiceKey(namespace, name), keys...); facts.Service != nil {
		out.add(e.api.derive.ExplainProfile(facts, port)...)
	}
}

// address explains GetProfile of an IP.
func (e *Explain) address(out *answer, target ask.Target, client string) {
	facts := e.api.table.Address(target.IP)
	s, err := derive.Owner(facts, target.IP)
	switch {
	case err != nil:
		var all []derive.Object
		for _, s := range facts.Services {
			all = append(all, derive.ServiceObject(s.Namespace, s.Name))
		}
		out.add(derive.Step{About: "service", Rule: "refused: " + err.Error(), Objects: all})
	case s != nil:
		out.add(derive.Step{About: "service", Rule: "the IP is its cluster IP", Objects: []derive.Object{derive.ServiceObject(s.Namespace, s.Name)}})
		e.profile(out, s.Namespace, s.Name, target.Port, client)
	default:
		out.add(e.api.derive.ExplainAddress(facts, netip.AddrPortFrom(target.IP, target.Port))...)
	}
}

// answer gathers steps.
type answer struct {
	log Log
	to  *explainv1.ExplainResponse
}

func (a *answer) add(steps ...derive.Step) {
	for _, s := range steps {
		if len(a.to.Steps) >= maxSteps {
			a.to.More++
			continue
		}
		step := &explainv1.Step{About: s.About, Rule: s.Rule}
		for _, o := range s.Objects {
			step.Objects = append(step.Objects, &explainv1.Object{
				Kind: o.Kind, Namespace: o.Namespace, Name: o.Name, Cluster: o.Cluster, Uid: a.uid(o),
			})
		}
		a.to.Steps = append(a.to.Steps, step)
	}
}

// uid looks into an object's row. The rows of linked clusters are not kept.
func (a *answer) uid(o derive.Object) string {
	info, ok := bus.Info(o.Table)
	if !ok || o.Cluster != "" {
		return ""
	}
	value, ok := a.log.Row(o.Table, o.Key)
	if !ok {
		return ""
	}
	m := info.New()
	if err := proto.Unmarshal(value, m); err != nil {
		return "" // the row was counted when it came
	}
	name := protoreflect.Name("uid")
	if o.Table == busv1.Table_TABLE_ENDPOINTS {
		name = "slice_uid" // an EndpointSlice has no row of its own, each of its addresses has
	}
	field := m.ProtoReflect().Descriptor().Fields().ByName(name)
	if field == nil || field.Kind() != protoreflect.StringKind {
		return ""
	}
	return m.ProtoReflect().Get(field).String()
}
