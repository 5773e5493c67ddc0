package serve

import (
	"errors"
	"net/netip"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	routesv1 "github.com/weftmesh/weft/proto/gen/weft/routes/v1"
	"github.com/weftmesh/weft/services/policy/internal/derive"
	"github.com/weftmesh/weft/services/policy/internal/derive/accept"
	"github.com/weftmesh/weft/services/policy/internal/derive/outbound"
	"github.com/weftmesh/weft/services/policy/internal/table"
)

// target is what a proxy asks about: an address it saw, or a name it was given.
type target struct {
	source   string         // the namespace of who asks
	addr     netip.AddrPort // valid: an address
	name     derive.ServicePort
	complete bool // ours, not Linkerd's API

	// ways are what the last answer chose from, if it led out of the cluster.
	ways *ways
}

// ways are the egress networks that may concern a client.
type ways struct{ own, global []*table.Egress }

// same says whether no network has come, gone or changed. Routes may have.
func (w ways) same(o ways) bool {
	network := func(a, b *table.Egress) bool { return a.Network == b.Network }
	return slices.EqualFunc(w.own, o.own, network) && slices.EqualFunc(w.global, o.global, network)
}

// askedBy reads who asks.
func askedBy(workload string) (target, error) {
	w, err := derive.ParseWorkload(workload)
	if err != nil {
		return target{}, status.Error(codes.InvalidArgument, err.Error())
	}
	return target{source: w.Namespace}, nil
}

// at makes it a target by address.
func (t *target) at(ip netip.Addr, port uint32) error {
	if port == 0 || port > 65535 {
		return status.Errorf(codes.InvalidArgument, "port %d is not from 1 to 65535", port)
	}
	t.addr = netip.AddrPortFrom(ip, uint16(port))
	return nil
}

// named makes it a target by name.
func (t *target) named(authority, domain string) error {
	name, err := derive.ParseAuthority(authority, domain)
	switch {
	case errors.Is(err, derive.ErrNotService):
		return status.Error(codes.NotFound, err.Error())
	case err != nil:
		return status.Error(codes.InvalidArgument, err.Error())
	}
	t.name = name
	return nil
}

// follow streams the answers about a target.
func (s *Server) follow(api string, t *target, out grpc.ServerStream) error {
	w := s.watch(*t) // before the first look: no change is missed
	defer w.Close()
	first, err := s.first(t)
	if err != nil {
		return err
	}
	return s.stream(api, out, w, first, func() (view, error) { return s.look(t) })
}

func (s *Server) watch(t target) *table.Watch {
	if t.addr.IsValid() {
		return s.tables.WatchTarget(t.addr.Addr(), t.source)
	}
	return s.tables.WatchService(t.name.Namespace, t.name.Name)
}

// first looks for something that must be there.
func (s *Server) first(t *target) (view, error) {
	v, err := s.look(t)
	if err == nil && v.gone {
		err = status.Error(codes.NotFound, "No such service")
	}
	return v, err
}

// look answers for a name whether it exists or not, for an address by what it
// belongs to. A Service is followed wherever it goes; when an egress network
// comes, goes or changes, who leaves the cluster must look up again (§9.5).
func (s *Server) look(t *target) (view, error) {
	if !t.addr.IsValid() {
		service, err := s.tables.Service(t.name.Namespace, t.name.Name)
		if err != nil {
			return view{}, statusOf(err)
		}
		return s.service(service, t.name, *t)
	}
	found, err := s.tables.Target(t.addr.Addr(), t.source)
	if err != nil {
		return view{}, statusOf(err)
	}
	var now *ways
	if found.Service == nil {
		now = &ways{own: found.Own, global: found.Global}
	}
	if t.ways != nil && now != nil && !now.same(*t.ways) {
		return view{gone: true}, nil
	}
	t.ways = now
	switch {
	case found.Service != nil:
		name := derive.ServicePort{Namespace: found.Service.Namespace, Name: found.Service.Name, Port: t.addr.Port()}
		if !found.Service.Declares(name.Port) {
			return s.seal(t.complete, outbound.Plain(outbound.UndefinedPort(name)))
		}
		return s.service(found.Service, name, *t)
	case found.Egress != nil:
		return s.egress(found.Egress, *t)
	case s.cluster.Contains(t.addr.Addr()):
		return view{gone: true}, nil
	}
	return s.seal(t.complete, outbound.Plain(outbound.Fallback(t.addr)))
}

// service makes or shares the answer for a Service, which may be nil.
func (s *Server) service(found *table.Service, name derive.ServicePort, t target) (view, error) {
	parent := outbound.Parent{Namespace: name.Namespace, Name: name.Name}
	q := outbound.Question{Port: name.Port, Source: t.source, Complete: t.complete}
	if found == nil {
		return s.seal(t.complete, outbound.Answer(s.cluster, parent, q))
	}
	parent.Service, parent.Routes = found.Service, found.Routes
	return s.share(found.Answers, found.Routes, parent, q)
}

// egress makes or shares the answer for an egress network.
func (s *Server) egress(found *table.Egress, t target) (view, error) {
	parent := outbound.Parent{
		Namespace: found.Row.GetNamespace(), Name: found.Row.GetName(), Egress: found.Network, Routes: found.Routes,
	}
	q := outbound.Question{Port: t.addr.Port(), Source: t.source, Address: t.addr.Addr(), Complete: t.complete}
	return s.share(found.Answers, found.Routes, parent, q)
}

func (s *Server) share(answers *table.Shared[table.Ask], routes *accept.Attached, p outbound.Parent, q outbound.Question) (view, error) {
	ask := table.Ask{Port: q.Port, Source: routes.Source(q.Source), Address: q.Address, Complete: q.Complete}
	answer, err := answers.Get(ask, func() (*derive.Answer, error) {
		v, err := s.seal(q.Complete, outbound.Answer(s.cluster, p, q))
		return v.answer, err
	})
	return view{answer: answer}, err
}

// seal encodes an answer for the API that asked.
func (s *Server) seal(complete bool, a outbound.Policy) (view, error) {
	if !complete {
		s.metrics.answers.WithLabelValues(apiOutbound).Inc()
		answer, err := derive.Seal(a.Policy)
		return view{answer: answer}, err
	}
	s.metrics.answers.WithLabelValues(apiRoutes).Inc()
	policy, err := proto.MarshalOptions{Deterministic: true}.Marshal(a.Policy)
	if err != nil {
		return view{}, status.Errorf(codes.Internal, "encoding an answer: %v", err)
	}
	answer, err := derive.Seal(&routesv1.WatchResponse{Policy: policy, Extensions: a.Extensions})
	return view{answer: answer}, err
}
