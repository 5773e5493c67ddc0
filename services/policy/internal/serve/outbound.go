package serve

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"github.com/linkerd/linkerd2-proxy-api/go/net"
	pb "github.com/linkerd/linkerd2-proxy-api/go/outbound"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/weftmesh/weft/services/policy/internal/derive"
	"github.com/weftmesh/weft/services/policy/internal/derive/outbound"
	"github.com/weftmesh/weft/services/policy/internal/table"
)

// outboundAPI answers how to reach a target.
type outboundAPI struct {
	pb.UnimplementedOutboundPoliciesServer
	*Server
}

// target is what a proxy asks about: an address it saw, or a name it was given.
type target struct {
	addr netip.AddrPort // valid: an address
	name derive.ServicePort
}

// Get answers once.
func (s outboundAPI) Get(_ context.Context, spec *pb.TrafficSpec) (*pb.OutboundPolicy, error) {
	t, err := s.targetOf(spec)
	if err != nil {
		return nil, err
	}
	v, err := s.first(t)
	if err != nil {
		return nil, err
	}
	out := &pb.OutboundPolicy{}
	if err := proto.Unmarshal(v.answer.Bytes(), out); err != nil {
		return nil, fmt.Errorf("reading an answer: %w", err)
	}
	return out, nil
}

// Watch answers now and whenever the answer changes, until the target is gone.
func (s outboundAPI) Watch(spec *pb.TrafficSpec, out grpc.ServerStreamingServer[pb.OutboundPolicy]) error {
	t, err := s.targetOf(spec)
	if err != nil {
		return err
	}
	w := s.watch(t) // before the first look: no change is missed
	defer w.Close()
	first, err := s.first(t)
	if err != nil {
		return err
	}
	return s.stream(apiOutbound, out, w, first, func() (view, error) { return s.look(t) })
}

func (s outboundAPI) watch(t target) *table.Watch {
	if t.addr.IsValid() {
		return s.tables.WatchAddress(t.addr.Addr())
	}
	return s.tables.WatchService(t.name.Namespace, t.name.Name)
}

// targetOf checks the question.
func (s outboundAPI) targetOf(spec *pb.TrafficSpec) (target, error) {
	if spec.GetTarget() == nil {
		return target{}, status.Error(codes.InvalidArgument, "target is required")
	}
	// The answer will depend on the source once routes have consumers; a proxy
	// that does not know who it is must hear so now.
	if _, err := derive.ParseWorkload(spec.GetSourceWorkload()); err != nil {
		return target{}, status.Error(codes.InvalidArgument, err.Error())
	}
	if addr := spec.GetAddr(); addr != nil {
		return addressOf(addr)
	}
	name, err := derive.ParseAuthority(spec.GetAuthority(), s.cluster.Domain)
	switch {
	case errors.Is(err, derive.ErrNotService):
		return target{}, status.Error(codes.NotFound, err.Error())
	case err != nil:
		return target{}, status.Error(codes.InvalidArgument, err.Error())
	}
	return target{name: name}, nil
}

func addressOf(addr *net.TcpAddress) (target, error) {
	var ip netip.Addr
	switch a := addr.GetIp().GetIp().(type) {
	case *net.IPAddress_Ipv4:
		var b [4]byte
		binary.BigEndian.PutUint32(b[:], a.Ipv4)
		ip = netip.AddrFrom4(b)
	case *net.IPAddress_Ipv6:
		var b [16]byte
		binary.BigEndian.PutUint64(b[:8], a.Ipv6.GetFirst())
		binary.BigEndian.PutUint64(b[8:], a.Ipv6.GetLast())
		ip = netip.AddrFrom16(b).Unmap()
	default:
		return target{}, status.Error(codes.InvalidArgument, "target has no IP address")
	}
	if p := addr.GetPort(); p == 0 || p > 65535 {
		return target{}, status.Errorf(codes.InvalidArgument, "port %d is not from 1 to 65535", p)
	}
	return target{addr: netip.AddrPortFrom(ip, uint16(addr.GetPort()))}, nil
}

// first looks for something that must be there.
func (s outboundAPI) first(t target) (view, error) {
	v, err := s.look(t)
	if err == nil && v.gone {
		err = status.Error(codes.NotFound, "No such service")
	}
	return v, err
}

// look answers for a name whether it exists or not, for an address by its owner.
func (s outboundAPI) look(t target) (view, error) {
	if !t.addr.IsValid() {
		service, err := s.tables.Service(t.name.Namespace, t.name.Name)
		if err != nil {
			return view{}, statusOf(err)
		}
		return s.view(service, t.name)
	}
	owner, err := s.tables.Owner(t.addr.Addr())
	switch {
	case err != nil:
		return view{}, statusOf(err)
	case owner != nil:
		name := derive.ServicePort{Namespace: owner.Namespace, Name: owner.Name, Port: t.addr.Port()}
		if !owner.Declares(name.Port) {
			return s.seal(outbound.UndefinedPort(name))
		}
		return s.view(owner, name)
	case s.cluster.Contains(t.addr.Addr()):
		return view{gone: true}, nil
	}
	return s.seal(outbound.Fallback(t.addr))
}

// view makes or shares the answer for a Service, which may be nil.
func (s outboundAPI) view(service *table.Service, name derive.ServicePort) (view, error) {
	if service == nil {
		return s.seal(outbound.Answer(s.cluster, nil, name))
	}
	answer, err := service.Answers.Get(name.Port, func() (*derive.Answer, error) {
		v, err := s.seal(outbound.Answer(s.cluster, service.Service, name))
		return v.answer, err
	})
	return view{answer: answer}, err
}

func (s outboundAPI) seal(p *pb.OutboundPolicy) (view, error) {
	s.metrics.answers.WithLabelValues(apiOutbound).Inc()
	answer, err := derive.Seal(p)
	return view{answer: answer}, err
}
