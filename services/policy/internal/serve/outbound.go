package serve

import (
	"context"
	"encoding/binary"
	"fmt"
	"net/netip"

	"github.com/linkerd/linkerd2-proxy-api/go/net"
	pb "github.com/linkerd/linkerd2-proxy-api/go/outbound"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// outboundAPI answers how to reach a target, in Linkerd's words.
type outboundAPI struct {
	pb.UnimplementedOutboundPoliciesServer
	*Server
}

// Get answers once.
func (s outboundAPI) Get(_ context.Context, spec *pb.TrafficSpec) (*pb.OutboundPolicy, error) {
	t, err := s.targetOf(spec)
	if err != nil {
		return nil, err
	}
	v, err := s.first(&t)
	if err != nil {
		return nil, err
	}
	out := &pb.OutboundPolicy{}
	if err := proto.Unmarshal(v.answer.Bytes(), out); err != nil {
		return nil, fmt.Errorf("reading an answer: %w", err)
	}
	return out, nil
}

// Watch answers now and whenever the answer changes, until the target is gone or
// the proxy must look it up again.
func (s outboundAPI) Watch(spec *pb.TrafficSpec, out grpc.ServerStreamingServer[pb.OutboundPolicy]) error {
	t, err := s.targetOf(spec)
	if err != nil {
		return err
	}
	return s.follow(apiOutbound, &t, out)
}

// targetOf checks the question.
func (s outboundAPI) targetOf(spec *pb.TrafficSpec) (target, error) {
	if spec.GetTarget() == nil {
		return target{}, status.Error(codes.InvalidArgument, "target is required")
	}
	t, err := askedBy(spec.GetSourceWorkload())
	if err != nil {
		return target{}, err
	}
	if addr := spec.GetAddr(); addr != nil {
		ip, err := ipOf(addr.GetIp())
		if err != nil {
			return target{}, err
		}
		err = t.at(ip, addr.GetPort())
		return t, err
	}
	err = t.named(spec.GetAuthority(), s.cluster.Domain)
	return t, err
}

func ipOf(ip *net.IPAddress) (netip.Addr, error) {
	switch a := ip.GetIp().(type) {
	case *net.IPAddress_Ipv4:
		var b [4]byte
		binary.BigEndian.PutUint32(b[:], a.Ipv4)
		return netip.AddrFrom4(b), nil
	case *net.IPAddress_Ipv6:
		var b [16]byte
		binary.BigEndian.PutUint64(b[:8], a.Ipv6.GetFirst())
		binary.BigEndian.PutUint64(b[8:], a.Ipv6.GetLast())
		return netip.AddrFrom16(b).Unmap(), nil
	}
	return netip.Addr{}, status.Error(codes.InvalidArgument, "target has no IP address")
}
