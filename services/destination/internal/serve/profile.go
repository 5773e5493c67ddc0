package serve

import (
	"bytes"
	"errors"
	"net/netip"

	pb "github.com/linkerd/linkerd2-proxy-api/go/destination"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/weftmesh/weft/services/destination/internal/ask"
	"github.com/weftmesh/weft/services/destination/internal/derive"
)

// profile is the source of one GetProfile. An answer is small, so each stream
// keeps its own.
type profile struct {
	make func() (*pb.DestinationProfile, error)

	any         bool // the client has something, perhaps an empty profile
	have, going []byte
}

// next is the newest profile, if the client does not have it. What disappears
// while it is watched leaves the client what it has: gone and not yet there look
// the same from here, and a proxy without a profile can't work.
func (p *profile) next() ([]encoded, error) {
	answer, err := p.make()
	if err != nil {
		var r *derive.Refusal
		if !errors.As(err, &r) {
			return nil, &refusal{status.Error(codes.Internal, "internal error")}
		}
		if p.any && r.Reason == derive.Missing {
			return nil, nil
		}
		return nil, refused(r)
	}
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(answer)
	if err != nil {
		return nil, &refusal{status.Error(codes.Internal, "internal error")}
	}
	if p.any && bytes.Equal(b, p.have) {
		return nil, nil
	}
	p.going = b
	return []encoded{b}, nil
}

func (p *profile) sent() { p.any, p.have = true, p.going }

func (a *API) addressProfile(at netip.AddrPort) func() (*pb.DestinationProfile, error) {
	return func() (*pb.DestinationProfile, error) {
		return a.derive.AddressProfile(a.table.Address(at.Addr()), at)
	}
}

func (a *API) serviceProfile(key string, target ask.Target) func() (*pb.DestinationProfile, error) {
	return func() (*pb.DestinationProfile, error) {
		s := a.table.Service(key)
		if s == nil {
			return nil, derive.NotFound(target.Namespace, target.Name)
		}
		return a.derive.ServiceProfile(s, target.Port)
	}
}

func (a *API) instanceProfile(key string, target ask.Target) func() (*pb.DestinationProfile, error) {
	return func() (*pb.DestinationProfile, error) {
		facts, _ := a.table.Endpoints(key)
		if facts.Service == nil {
			return nil, derive.NotFound(target.Namespace, target.Name)
		}
		return a.derive.InstanceProfile(facts, derive.Query{Port: target.Port, Instance: target.Instance})
	}
}
