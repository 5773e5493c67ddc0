package row

import (
	"fmt"
	"math"
	"strings"
	"time"

	pb "github.com/linkerd/linkerd2-proxy-api/go/destination"
	"google.golang.org/protobuf/types/known/durationpb"

	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
)

// ServiceProfile is what was written about the requests to a Service, in the
// form that proxies take, so that it is judged once and shared by all answers.
type ServiceProfile struct {
	Namespace, Name string
	Routes          []*pb.Route
	// Budget is nil where none is written, which means the default.
	Budget    *pb.RetryBudget
	Overrides []Override
}

// Override is one destination that takes a share of a Service's requests.
type Override struct {
	// Authority is a host with or without a port; of a TrafficSplit, the name of
	// a Service.
	Authority string
	// Weight is in units of a ten-thousandth.
	Weight uint32
}

// TrafficSplit divides the requests to a Service among others of its namespace.
type TrafficSplit struct {
	Namespace, Name string
	// Apex is the name of the Service whose requests are divided; empty when what
	// was written names none of this namespace.
	Apex      string
	Backends  []Override
	CreatedAt int64 // Unix seconds
}

// DecodeServiceProfile reads a row of the table serviceprofiles. A profile of
// which one part makes no sense is an error as a whole, as with Linkerd: half a
// profile would send requests where nobody meant them to go. A timeout that
// can't be read is only left out.
func DecodeServiceProfile(value []byte) (*ServiceProfile, error) {
	m, err := unmarshal(value, &busv1.ServiceProfile{})
	if err != nil {
		return nil, err
	}
	p := &ServiceProfile{Namespace: m.GetNamespace(), Name: m.GetName(), Overrides: overrides(m.GetDstOverrides())}
	for _, r := range m.GetRoutes() {
		route, err := profileRoute(r)
		if err != nil {
			return nil, fmt.Errorf("reading route %q: %w", r.GetName(), err)
		}
		p.Routes = append(p.Routes, route)
	}
	if b := m.GetRetryBudget(); b != nil {
		ttl, err := time.ParseDuration(b.GetTtl())
		if err != nil {
			return nil, fmt.Errorf("reading the retry budget: %w", err)
		}
		p.Budget = &pb.RetryBudget{
			RetryRatio: b.GetRetryRatio(), MinRetriesPerSecond: b.GetMinRetriesPerSecond(), Ttl: durationpb.New(ttl),
		}
	}
	return p, nil
}

// DecodeTrafficSplit reads a row of the table trafficsplits.
func DecodeTrafficSplit(value []byte) (*TrafficSplit, error) {
	m, err := unmarshal(value, &busv1.TrafficSplit{})
	if err != nil {
		return nil, err
	}
	s := &TrafficSplit{
		Namespace: m.GetNamespace(), Name: m.GetName(), CreatedAt: m.GetCreatedAt(),
		Apex: ofNamespace(m.GetService(), m.GetNamespace()),
	}
	for _, b := range overrides(m.GetBackends()) {
		if b.Authority = ofNamespace(b.Authority, s.Namespace); b.Authority != "" {
			s.Backends = append(s.Backends, b)
		}
	}
	return s, nil
}

// ofNamespace is the Service that a TrafficSplit names, which may be written in
// full (SMI allows it for the apex); empty when it is in another namespace,
// since whoever may write splits here has no say there.
func ofNamespace(name, namespace string) string {
	first, rest, full := strings.Cut(name, ".")
	if !full {
		return first
	}
	if in, _, _ := strings.Cut(rest, "."); in == namespace {
		return first
	}
	return ""
}

// overrides leaves out what no proxy could use: a share without a destination.
func overrides(all []*busv1.WeightedDst) []Override {
	var out []Override
	for _, d := range all {
		if d.GetAuthority() != "" {
			out = append(out, Override{Authority: d.GetAuthority(), Weight: weight(d.GetWeightMilli())})
		}
	}
	return out
}

// weight turns thousandths into ten-thousandths, within the API's range.
func weight(milli int64) uint32 {
	const most = math.MaxUint32 / 10
	return uint32(min(max(milli, 0), most)) * 10
}

func profileRoute(r *busv1.ProfileRoute) (*pb.Route, error) {
	condition, err := requestMatch(r.GetCondition(), 0)
	if err != nil {
		return nil, err
	}
	route := &pb.Route{
		Condition: condition, IsRetryable: r.GetRetryable(), MetricsLabels: map[string]string{"route": r.GetName()},
	}
	for _, c := range r.GetResponseClasses() {
		on, err := responseMatch(c.GetCondition(), 0)
		if err != nil {
			return nil, fmt.Errorf("reading a response class: %w", err)
		}
		route.ResponseClasses = append(route.ResponseClasses, &pb.ResponseClass{Condition: on, IsFailure: c.GetIsFailure()})
	}
	if d, err := time.ParseDuration(r.GetTimeout()); err == nil && d >= 0 {
		route.Timeout = durationpb.New(d)
	}
	return route, nil
}
