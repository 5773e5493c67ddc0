package serve

import (
	"context"
	"net/netip"
	"strings"

	"github.com/linkerd/linkerd2-proxy-api/go/inbound"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	explainv1 "github.com/weftmesh/weft/proto/gen/weft/explain/v1"
	"github.com/weftmesh/weft/services/policy/internal/derive"
	"github.com/weftmesh/weft/services/policy/internal/derive/why"
	"github.com/weftmesh/weft/services/policy/internal/table"
)

// explainAPI tells people why: weft.explain.v1.InboundService, OutboundService
// and CandidateService.
type explainAPI struct {
	*Server
	// turn lets one ask what would be at a time: each takes a copy of the tables.
	turn chan struct{}
	// reading bounds the questions that are held meanwhile.
	reading chan struct{}
}

// explainer is what a method's server is.
type explainer interface{ inbound() inboundAPI }

func (s explainAPI) inbound() inboundAPI { return inboundAPI{Server: s.Server} }

// unary describes a service of one method; made by hand, so that the module of
// the messages needs no gRPC.
func unary[In any, M message[In], Out any](service, method, file string, answer func(explainAPI, context.Context, M) (Out, error)) *grpc.ServiceDesc {
	return &grpc.ServiceDesc{
		ServiceName: service,
		HandlerType: (*explainer)(nil),
		Methods: []grpc.MethodDesc{{
			MethodName: method,
			Handler: func(server any, ctx context.Context, decode func(any) error, through grpc.UnaryServerInterceptor) (any, error) {
				r := M(new(In))
				if err := decode(r); err != nil {
					return nil, err
				}
				call := func(ctx context.Context, _ any) (any, error) {
					return answer(server.(explainAPI), ctx, r) //nolint:forcetypeassert // nothing else is registered
				}
				if through == nil {
					return call(ctx, r)
				}
				return through(ctx, r, &grpc.UnaryServerInfo{Server: server, FullMethod: "/" + service + "/" + method}, call)
			},
		}},
		Metadata: file,
	}
}

// message is a generated type.
type message[T any] interface {
	*T
	proto.Message
}

// registerExplain adds the services for people.
func registerExplain(g grpc.ServiceRegistrar, s *Server) {
	api := explainAPI{Server: s, turn: make(chan struct{}, 1), reading: make(chan struct{}, maxReading)}
	g.RegisterService(unary("weft.explain.v1.InboundService", "ExplainInbound", "weft/explain/v1/inbound.proto", explainAPI.explainInbound), api)
	g.RegisterService(unary("weft.explain.v1.OutboundService", "ExplainOutbound", "weft/explain/v1/outbound.proto", explainAPI.explainOutbound), api)
	g.RegisterService(&grpc.ServiceDesc{
		ServiceName: "weft.explain.v1.CandidateService",
		HandlerType: (*explainer)(nil),
		Streams: []grpc.StreamDesc{{
			StreamName: "Check", ClientStreams: true,
			Handler: func(_ any, stream grpc.ServerStream) error { return api.check(stream) },
		}},
		Metadata: "weft/explain/v1/candidate.proto",
	}, api)
}

// maxIgnored bounds an explanation: a person reads no more.
const maxIgnored = 100

// explainInbound judges a client by the answer that the workload's proxy has.
func (s explainAPI) explainInbound(_ context.Context, r *explainv1.ExplainInboundRequest) (*explainv1.ExplainInboundResponse, error) {
	if _, err := netip.ParseAddr(r.GetClientAddress()); err != nil {
		return nil, status.Error(codes.InvalidArgument, "client_address is not an IP address")
	}
	client, err := clientOf(r, "")
	if err != nil {
		return nil, err
	}
	verdict, subject, err := s.inbound().judge(r, client)
	if err != nil {
		return nil, err
	}
	if verdict.TooMuch {
		return nil, status.Error(codes.ResourceExhausted, verdict.Reason)
	}
	out := &explainv1.ExplainInboundResponse{
		Epoch: subject.Position.Epoch, Seq: subject.Position.Seq,
		Outcome: outcomes[verdict.Outcome], Server: verdict.Server, Route: verdict.Route, By: verdict.By, Reason: verdict.Reason,
		Routes: reasonsOf(verdict.Routes),
	}
	for _, rule := range verdict.Rules {
		out.Rules = append(out.Rules, &explainv1.Rule{Name: rule.Name, OfRoute: rule.Route, Reason: rule.Reason})
	}
	ignored := subject.Scope.Ignored
	out.Ignored = ignored[:min(len(ignored), maxIgnored)]
	return out, nil
}

// judge judges a client by what the workload's proxy is told.
func (s inboundAPI) judge(r *explainv1.ExplainInboundRequest, client why.Client) (why.Verdict, table.Subject, error) {
	a, subject, err := s.toldTo(r)
	if err != nil {
		return why.Verdict{}, subject, err
	}
	answer, err := readable(a)
	if err != nil {
		return why.Verdict{}, subject, err
	}
	return why.Explain(answer, client), subject, nil
}

// toldTo finds what the proxy of a workload is told.
func (s inboundAPI) toldTo(r *explainv1.ExplainInboundRequest) (*derive.Answer, table.Subject, error) {
	who, port, err := portOf(&inbound.PortSpec{Workload: r.GetWorkload(), Port: r.GetPort()})
	if err != nil {
		return nil, table.Subject{}, err
	}
	v, subject, err := s.first(who, port)
	return v.answer, subject, err
}

func readable(a *derive.Answer) (*inbound.Server, error) {
	answer := &inbound.Server{}
	if err := proto.Unmarshal(a.Bytes(), answer); err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	return answer, nil
}

func reasonsOf(routes []why.RouteReason) (out []*explainv1.RouteReason) {
	for _, r := range routes {
		out = append(out, &explainv1.RouteReason{Name: r.Name, Reason: r.Reason})
	}
	return out
}

var outcomes = [...]explainv1.Outcome{
	why.Denied:  explainv1.Outcome_OUTCOME_DENIED,
	why.Allowed: explainv1.Outcome_OUTCOME_ALLOWED,
	why.NoRoute: explainv1.Outcome_OUTCOME_NO_ROUTE,
	// Never of an answer about a client whose address is known.
	why.Unknown: explainv1.Outcome_OUTCOME_UNSPECIFIED,
}

// clientOf reads who comes; an address that is empty is not known.
func clientOf(r *explainv1.ExplainInboundRequest, route string) (why.Client, error) {
	c := why.Client{Identity: r.GetClientIdentity(), TLS: r.GetClientTls(), Route: route}
	if len(c.Identity) > maxIdentity {
		return why.Client{}, status.Errorf(codes.InvalidArgument, "client_identity has more than %d bytes", maxIdentity)
	}
	if text := r.GetClientAddress(); text != "" {
		addr, err := netip.ParseAddr(text)
		if err != nil {
			return why.Client{}, status.Error(codes.InvalidArgument, "client_address is not an IP address")
		}
		c.Address = addr
	}
	request, err := requestOf(r.GetRequest())
	c.Request = request
	return c, err
}

// maxRequest bounds a request that is asked about, in bytes: expressions are tried
// on all of it. maxIdentity bounds a client's name, which reasons repeat.
const (
	maxRequest  = 16 << 10
	maxIdentity = 1 << 10
)

// requestOf reads a request; nil if there is none.
func requestOf(h *explainv1.HttpRequest) (*why.Request, error) {
	if h == nil {
		return nil, nil //nolint:nilnil // nil is a connection of bytes
	}
	if !strings.HasPrefix(h.GetPath(), "/") || h.GetMethod() == "" {
		return nil, status.Error(codes.InvalidArgument, "a request has a method, and a path that begins with /")
	}
	if proto.Size(h) > maxRequest {
		return nil, status.Errorf(codes.InvalidArgument, "a request may have %d KiB", maxRequest>>10)
	}
	out := &why.Request{Method: h.GetMethod(), Path: h.GetPath(), Host: h.GetHost(), Headers: map[string][]string{}}
	for _, header := range h.GetHeaders() {
		name := strings.ToLower(header.GetName())
		out.Headers[name] = append(out.Headers[name], header.GetValue())
	}
	return out, nil
}
