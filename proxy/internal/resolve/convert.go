package resolve

import (
	"errors"
	"fmt"
	"strings"
	"time"

	metapb "github.com/linkerd/linkerd2-proxy-api/go/meta"
	opaquepb "github.com/linkerd/linkerd2-proxy-api/go/opaque_route"
	outpb "github.com/linkerd/linkerd2-proxy-api/go/outbound"
	"google.golang.org/protobuf/types/known/durationpb"
)

// policyOf reads a policy. One that cannot be read is the policy Invalid, never a
// looser one (spec/proxy.md §5.2).
func policyOf(p *outpb.OutboundPolicy) *Policy {
	out, err := readPolicy(p)
	if err != nil {
		return invalid(err)
	}
	return out
}

func readPolicy(p *outpb.OutboundPolicy) (*Policy, error) {
	parent, err := refOf(p.GetMetadata())
	if err != nil {
		return nil, err
	}
	out := &Policy{Parent: parent}
	switch kind := p.GetProtocol().GetKind().(type) {
	case *outpb.ProxyProtocol_Detect_:
		d := kind.Detect
		if d.GetOpaque() == nil || d.GetHttp1() == nil || d.GetHttp2() == nil {
			return nil, errors.New("a detect policy lacks a protocol")
		}
		out.Protocol = Detect
		if out.HTTP1, err = httpOf(d.GetHttp1().GetRoutes(), d.GetHttp1().GetFailureAccrual()); err != nil {
			return nil, err
		}
		if out.HTTP2, err = httpOf(d.GetHttp2().GetRoutes(), d.GetHttp2().GetFailureAccrual()); err != nil {
			return nil, err
		}
		err = out.opaque(d.GetOpaque().GetRoutes())
	case *outpb.ProxyProtocol_Http1_:
		out.Protocol = HTTP1
		out.HTTP1, err = httpOf(kind.Http1.GetRoutes(), kind.Http1.GetFailureAccrual())
	case *outpb.ProxyProtocol_Http2_:
		out.Protocol = HTTP2
		out.HTTP2, err = httpOf(kind.Http2.GetRoutes(), kind.Http2.GetFailureAccrual())
	case *outpb.ProxyProtocol_Grpc_:
		out.Protocol = GRPC
		out.HTTP2, err = grpcOf(kind.Grpc.GetRoutes(), kind.Grpc.GetFailureAccrual())
	case *outpb.ProxyProtocol_Opaque_:
		out.Protocol = Opaque
		err = out.opaque(kind.Opaque.GetRoutes())
	case *outpb.ProxyProtocol_Tls_:
		out.Protocol = TLS
		err = out.tls(kind.Tls.GetRoutes())
	default:
		return nil, errors.New("the policy has no protocol we know")
	}
	if err != nil {
		return nil, err
	}
	return out, nil
}

// opaque takes the one rule that opaque traffic has.
func (p *Policy) opaque(routes []*outpb.OpaqueRoute) error {
	if len(routes) == 0 {
		return nil
	}
	ref, err := refOf(routes[0].GetMetadata())
	if err != nil {
		return err
	}
	if len(routes) > 1 || len(routes[0].GetRules()) != 1 {
		return errors.New("an opaque policy has one route with one rule")
	}
	rule := routes[0].GetRules()[0]
	if p.Closes, err = closingOf(rule.GetFilters()); err != nil {
		return err
	}
	p.Opaque.Ref = ref
	d := rule.GetBackends()
	if _, none := d.GetKind().(*outpb.OpaqueRoute_Distribution_Empty_); none {
		return nil
	}
	return addBackends(&p.Opaque, d.GetFirstAvailable().GetBackends(), d.GetRandomAvailable().GetBackends(), closing[*outpb.OpaqueRoute_Filter])
}

// closer is a filter of connections, of either protocol.
type closer interface {
	GetForbidden() *opaquepb.Forbidden
	GetInvalid() *opaquepb.Invalid
}

// closingOf reads filters, of which the first decides (spec/proxy.md §5.6).
func closingOf[F closer](filters []F) (Closing, error) {
	out := Stays
	for i, f := range filters {
		why := Forbidden
		if f.GetForbidden() == nil {
			if why = NoBackend; f.GetInvalid() == nil {
				return Stays, errFilter
			}
		}
		if i == 0 {
			out = why
		}
	}
	return out, nil
}

// closing reads the filters of a backend.
func closing[F closer](b *Backend, filters []F) (err error) {
	b.Closes, err = closingOf(filters)
	return err
}

// add makes out, of which the weight and the filters are known, the next backend.
func (s *Split) add(kind SplitKind, b *outpb.Backend, out Backend) error {
	ref, err := refOf(b.GetMetadata())
	if err != nil {
		return err
	}
	s.Kind = kind
	out.Ref, out.Load = ref, DefaultLoad
	switch k := b.GetKind().(type) {
	case *outpb.Backend_Forward:
		e, ok := endpointOf(k.Forward, nil)
		if !ok {
			return fmt.Errorf("%s: the address to forward to cannot be read", ref)
		}
		out.Forward = &e
	case *outpb.Backend_Balancer:
		out.Path = k.Balancer.GetDiscovery().GetDst().GetPath()
		if out.Path == "" {
			return fmt.Errorf("%s: a balancer without a destination", ref)
		}
		switch l := k.Balancer.GetLoad().(type) {
		case *outpb.Backend_BalanceP2C_PeakEwma_:
			out.Load = loadOf(l.PeakEwma.GetDefaultRtt(), l.PeakEwma.GetDecay())
		case *outpb.Backend_BalanceP2C_PenaltyPeakEwma_:
			out.Load = loadOf(l.PenaltyPeakEwma.GetDefaultRtt(), l.PenaltyPeakEwma.GetDecay())
			out.Load.Penalty = orElse(l.PenaltyPeakEwma.GetPenalty(), 5*time.Second)
			out.Load.MaxRetryAfter = orElse(l.PenaltyPeakEwma.GetMaxRetryAfter(), 300*time.Second)
		}
	}
	s.Backends = append(s.Backends, out)
	return nil
}

// check refuses a split that was to choose among nothing.
func (s *Split) check() error {
	if len(s.Backends) == 0 {
		return errors.New("a distribution without backends")
	}
	return nil
}

func loadOf(rtt, decay *durationpb.Duration) Load {
	return Load{DefaultRTT: orElse(rtt, DefaultLoad.DefaultRTT), Decay: orElse(decay, DefaultLoad.Decay)}
}

// orElse is a duration that says something, or what is meant without.
func orElse(d *durationpb.Duration, otherwise time.Duration) time.Duration {
	if got := d.AsDuration(); got > 0 {
		return got
	}
	return otherwise
}

// refOf reads metadata; a resource must be named in full.
func refOf(m *metapb.Metadata) (Ref, error) {
	switch k := m.GetKind().(type) {
	case *metapb.Metadata_Default:
		return fallback(k.Default), nil
	case *metapb.Metadata_Resource:
		r := k.Resource
		if r.GetGroup() == "" || r.GetKind() == "" || r.GetName() == "" || r.GetNamespace() == "" {
			return Ref{}, fmt.Errorf("a resource is not named in full: %s/%s %s/%s", r.GetGroup(), r.GetKind(), r.GetNamespace(), r.GetName())
		}
		if r.GetPort() > 65535 {
			return Ref{}, fmt.Errorf("port %d of %s is out of range", r.GetPort(), r.GetName())
		}
		return Ref{Group: r.GetGroup(), Kind: r.GetKind(), Namespace: r.GetNamespace(), Name: r.GetName(), Section: r.GetSection(), Port: uint16(r.GetPort())}, nil
	}
	return Ref{}, errors.New("metadata is missing")
}

func accrualOf(a *outpb.FailureAccrual) (Accrual, error) {
	switch k := a.GetKind().(type) {
	case *outpb.FailureAccrual_ConsecutiveFailures_:
		b, err := breakerBackoff(k.ConsecutiveFailures.GetBackoff())
		return Accrual{Consecutive: int(k.ConsecutiveFailures.GetMaxFailures()), Backoff: b}, err
	case *outpb.FailureAccrual_Unified_:
		u := k.Unified
		b, err := breakerBackoff(u.GetBackoff())
		out := Accrual{
			Unified: true, Consecutive: int(u.GetMaxConsecutiveFailures()), Backoff: b,
			SuccessRate: float64(u.GetSuccessRateThreshold()), Window: u.GetDecay().AsDuration(), MinRequests: int(u.GetMinRequests()),
		}
		if out.Window <= 0 {
			out.Window = 10 * time.Second
		}
		if err == nil && (out.SuccessRate < 0 || out.SuccessRate > 1 || out.Window < 10*time.Millisecond || out.MinRequests > 1e6) {
			err = errors.New("failure accrual is out of range")
		}
		return out, err
	}
	return Accrual{}, nil
}

func breakerBackoff(b *outpb.ExponentialBackoff) (Backoff, error) {
	out := backoffOf(b)
	if out.Min <= 0 || out.Min > out.Max || !(out.Jitter >= 0 && out.Jitter <= 100) {
		return Backoff{}, errors.New("the backoff of failure accrual is out of range")
	}
	return out, nil
}

func backoffOf(b *outpb.ExponentialBackoff) Backoff {
	return Backoff{Min: b.GetMinBackoff().AsDuration(), Max: b.GetMaxBackoff().AsDuration(), Jitter: float64(b.GetJitterRatio())}
}

// lower makes a host comparable.
func lower(host string) string { return strings.ToLower(strings.TrimSuffix(host, ".")) }
