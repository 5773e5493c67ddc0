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
	"github.com/weftmesh/weft/services/destination/internal/table"
)

// profile is the source of one GetProfile. An answer is small, so each stream
// keeps its own.
type profile struct {
	*stream
	target    ask.Target
	namespace string        // of the client
	topics    []table.Topic // that are followed

	any         bool // the client has something, perhaps an empty profile
	have, going []byte
}

// next is the newest profile, if the client does not have it. What disappears
// while it is watched leaves the client what it has: gone and not yet there look
// the same from here, and a proxy without a profile can't work.
func (p *profile) next() ([]encoded, error) {
	answer, err := p.answer()
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
	return []encoded{ready(b)}, nil
}

func (p *profile) close() {}

func (p *profile) sent() { p.any, p.have = true, p.going }

// answer follows what the profile reads and works it out.
func (p *profile) answer() (*pb.DestinationProfile, error) {
	t, c := p.api.table, p.api.derive
	switch key := table.ServiceKey(p.target.Namespace, p.target.Name); {
	case p.target.IP.IsValid():
		return p.address()
	case p.target.Instance != "":
		p.watch.Follow(t, table.Endpoints(key))
		facts, _ := t.Endpoints(key)
		if facts.Service == nil {
			return nil, derive.NotFound(p.target.Namespace, p.target.Name)
		}
		return c.InstanceProfile(facts, derive.Query{Port: p.target.Port, Instance: p.target.Instance})
	default:
		return p.service(p.target.Namespace, p.target.Name)
	}
}

// address is the answer for an IP. Whose it is decides what else is followed,
// and only what is followed may be read.
func (p *profile) address() (*pb.DestinationProfile, error) {
	t, by := p.api.table, table.Address(p.target.IP)
	if len(p.topics) == 0 {
		p.topics = []table.Topic{by}
	}
	p.watch.Follow(t, p.topics...)
	facts := t.Address(p.target.IP)
	s, err := derive.Owner(facts, p.target.IP)
	switch {
	case err != nil:
		return nil, err
	case s != nil:
		return p.service(s.Namespace, s.Name, by)
	}
	return p.api.derive.AddressProfile(facts, netip.AddrPortFrom(p.target.IP, p.target.Port))
}

// service is the answer for a Service, which was found by other topics.
func (p *profile) service(namespace, name string, by ...table.Topic) (*pb.DestinationProfile, error) {
	t, c, key := p.api.table, p.api.derive, table.ServiceKey(namespace, name)
	namespaces, full := c.ProfileNames(namespace, name, p.namespace)
	topics, keys := append(by, table.Service(key)), make([]string, len(namespaces))
	for i, ns := range namespaces {
		keys[i] = table.ProfileKey(ns, full)
		topics = append(topics, table.Profile(keys[i]))
	}
	p.topics = topics
	p.watch.Follow(t, topics...)
	facts := t.Profile(key, keys...)
	if facts.Service == nil {
		return nil, derive.NotFound(namespace, name)
	}
	return c.ServiceProfile(facts, p.target.Port)
}
