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
	"github.com/weftmesh/weft/services/policy/internal/derive/why"
)

// explainAPI tells people why a client may or may not come in:
// weft.explain.v1.InboundService.
type explainAPI struct{ inboundAPI }

// explainer is what explainDesc asks of its server.
type explainer interface {
	explain(*explainv1.ExplainInboundRequest) (*explainv1.ExplainInboundResponse, error)
}

// explainDesc is what protoc-gen-go-grpc would make of the service; made by hand,
// so that the module of the messages needs no gRPC.
func explainDesc() *grpc.ServiceDesc {
	const name = "weft.explain.v1.InboundService"
	return &grpc.ServiceDesc{
		ServiceName: name,
		HandlerType: (*explainer)(nil),
		Methods: []grpc.MethodDesc{{
			MethodName: "ExplainInbound",
			Handler: func(server any, ctx context.Context, decode func(any) error, through grpc.UnaryServerInterceptor) (any, error) {
				r := &explainv1.ExplainInboundRequest{}
				if err := decode(r); err != nil {
					return nil, err
				}
				call := func(context.Context, any) (any, error) {
					return server.(explainer).explain(r) //nolint:forcetypeassert // gRPC has checked HandlerType
				}
				if through == nil {
					return call(ctx, r)
				}
				return through(ctx, r, &grpc.UnaryServerInfo{Server: server, FullMethod: "/" + name + "/ExplainInbound"}, call)
			},
		}},
		Metadata: "weft/explain/v1/inbound.proto",
	}
}

// maxIgnored bounds an explanation: a person reads no more.
const maxIgnored = 100

// explain judges a client by the answer that the workload's proxy has.
func (s explainAPI) explain(r *explainv1.ExplainInboundRequest) (*explainv1.ExplainInboundResponse, error) {
	who, port, err := portOf(&inbound.PortSpec{Workload: r.GetWorkload(), Port: r.GetPort()})
	if err != nil {
		return nil, err
	}
	client, err := clientOf(r)
	if err != nil {
		return nil, err
	}
	v, subject, err := s.first(who, port)
	if err != nil {
		return nil, err
	}
	answer := &inbound.Server{}
	if err := proto.Unmarshal(v.answer.Bytes(), answer); err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	verdict := why.Explain(answer, client)
	out := &explainv1.ExplainInboundResponse{
		Epoch: subject.Position.Epoch, Seq: subject.Position.Seq,
		Outcome: outcomes[verdict.Outcome], Server: verdict.Server, Route: verdict.Route, By: verdict.By, Reason: verdict.Reason,
	}
	for _, rule := range verdict.Rules {
		out.Rules = append(out.Rules, &explainv1.Rule{Name: rule.Name, OfRoute: rule.Route, Reason: rule.Reason})
	}
	ignored := subject.Scope.Ignored
	out.Ignored = ignored[:min(len(ignored), maxIgnored)]
	return out, nil
}

var outcomes = [...]explainv1.Outcome{
	why.Denied:  explainv1.Outcome_OUTCOME_DENIED,
	why.Allowed: explainv1.Outcome_OUTCOME_ALLOWED,
	why.NoRoute: explainv1.Outcome_OUTCOME_NO_ROUTE,
}

func clientOf(r *explainv1.ExplainInboundRequest) (why.Client, error) {
	addr, err := netip.ParseAddr(r.GetClientAddress())
	if err != nil {
		return why.Client{}, status.Error(codes.InvalidArgument, "client_address is not an IP address")
	}
	c := why.Client{Address: addr, Identity: r.GetClientIdentity(), TLS: r.GetClientTls()}
	if h := r.GetRequest(); h != nil {
		if !strings.HasPrefix(h.GetPath(), "/") || h.GetMethod() == "" {
			return why.Client{}, status.Error(codes.InvalidArgument, "a request has a method, and a path that begins with /")
		}
		c.Request = &why.Request{Method: h.GetMethod(), Path: h.GetPath(), Host: h.GetHost(), Headers: map[string][]string{}}
		for _, header := range h.GetHeaders() {
			name := strings.ToLower(header.GetName())
			c.Request.Headers[name] = append(c.Request.Headers[name], header.GetValue())
		}
	}
	return c, nil
}
