package serve

import (
	"context"
	"net/netip"

	"github.com/linkerd/linkerd2-proxy-api/go/outbound"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	explainv1 "github.com/weftmesh/weft/proto/gen/weft/explain/v1"
	routesv1 "github.com/weftmesh/weft/proto/gen/weft/routes/v1"
	"github.com/weftmesh/weft/services/policy/internal/derive/why"
)

// explainOutbound follows a request by the answer that the client's proxy has.
func (s explainAPI) explainOutbound(_ context.Context, r *explainv1.ExplainOutboundRequest) (*explainv1.ExplainOutboundResponse, error) {
	way, err := s.follows(r, "")
	if err != nil {
		return nil, err
	}
	if way.TooMuch {
		return nil, status.Error(codes.ResourceExhausted, way.Reason)
	}
	refused, at := s.tables.Refused(way.Parent)
	return &explainv1.ExplainOutboundResponse{
		Epoch: at.Epoch, Seq: at.Seq,
		Parent: way.Parent, Protocol: way.Protocol, Route: way.Route, Does: way.Does, Routes: reasonsOf(way.Routes), Reason: way.Reason,
		Ignored: refused[:min(len(refused), maxIgnored)],
	}, nil
}

// follows finds a request's way; route is what takes it where the request is not
// known.
func (s *Server) follows(r *explainv1.ExplainOutboundRequest, route string) (why.Way, error) {
	t, err := s.targetBy(r)
	if err != nil {
		return why.Way{}, err
	}
	request, err := requestOf(r.GetRequest())
	if err != nil {
		return why.Way{}, err
	}
	v, err := s.first(&t)
	if err != nil {
		return why.Way{}, err
	}
	var answer routesv1.WatchResponse
	var policy outbound.OutboundPolicy
	if err := proto.Unmarshal(v.answer.Bytes(), &answer); err != nil {
		return why.Way{}, status.Error(codes.Internal, err.Error())
	}
	if err := proto.Unmarshal(answer.GetPolicy(), &policy); err != nil {
		return why.Way{}, status.Error(codes.Internal, err.Error())
	}
	return why.Follow(&policy, answer.GetExtensions(), request, route), nil
}

// targetBy reads a question: an address with its port, or a name. The answer is
// the complete one, as our own proxy has it.
func (s *Server) targetBy(r *explainv1.ExplainOutboundRequest) (target, error) {
	t, err := askedBy(r.GetSourceWorkload())
	if err != nil {
		return target{}, err
	}
	t.complete = true
	if addr, err := netip.ParseAddrPort(r.GetTarget()); err == nil {
		err = t.at(addr.Addr().Unmap(), uint32(addr.Port()))
		return t, err
	}
	err = t.named(r.GetTarget(), s.cluster.Domain)
	return t, err
}
