package row

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	pb "github.com/linkerd/linkerd2-proxy-api/go/destination"
	"github.com/linkerd/linkerd2-proxy-api/go/http_types"
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

// The mistakes for which a whole profile is refused (spec §4.2).
var (
	errNoMatch = errors.New("a match has no field set")
	errStatus  = errors.New("a status is outside 100 to 599")
	errRange   = errors.New("a range of statuses ends before it begins")
	errDepth   = errors.New("matches are nested too deeply")
)

// maxDepth bounds the nesting of matches. Proxies give up at a hundred levels of
// a message, and each of ours takes two.
const maxDepth = 32

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

// requestMatch joins the fields that are set: all of them must hold.
func requestMatch(m *busv1.RequestMatch, depth int) (*pb.RequestMatch, error) {
	if depth > maxDepth {
		return nil, errDepth
	}
	var set []*pb.RequestMatch
	if len(m.GetAll()) > 0 {
		seq, err := requestMatches(m.GetAll(), depth)
		if err != nil {
			return nil, err
		}
		set = append(set, &pb.RequestMatch{Match: &pb.RequestMatch_All{All: seq}})
	}
	if len(m.GetAny()) > 0 {
		seq, err := requestMatches(m.GetAny(), depth)
		if err != nil {
			return nil, err
		}
		set = append(set, &pb.RequestMatch{Match: &pb.RequestMatch_Any{Any: seq}})
	}
	if m.GetMethod() != "" {
		set = append(set, &pb.RequestMatch{Match: &pb.RequestMatch_Method{Method: method(m.GetMethod())}})
	}
	if m.GetNot() != nil {
		not, err := requestMatch(m.GetNot(), depth+1)
		if err != nil {
			return nil, err
		}
		set = append(set, &pb.RequestMatch{Match: &pb.RequestMatch_Not{Not: not}})
	}
	if m.GetPathRegex() != "" {
		set = append(set, &pb.RequestMatch{Match: &pb.RequestMatch_Path{Path: &pb.PathMatch{Regex: m.GetPathRegex()}}})
	}
	switch len(set) {
	case 0:
		return nil, errNoMatch
	case 1:
		return set[0], nil
	default:
		return &pb.RequestMatch{Match: &pb.RequestMatch_All{All: &pb.RequestMatch_Seq{Matches: set}}}, nil
	}
}

func requestMatches(all []*busv1.RequestMatch, depth int) (*pb.RequestMatch_Seq, error) {
	seq := &pb.RequestMatch_Seq{}
	for _, m := range all {
		one, err := requestMatch(m, depth+1)
		if err != nil {
			return nil, err
		}
		seq.Matches = append(seq.Matches, one)
	}
	return seq, nil
}

// responseMatch is requestMatch for answers.
func responseMatch(m *busv1.ResponseMatch, depth int) (*pb.ResponseMatch, error) {
	if depth > maxDepth {
		return nil, errDepth
	}
	var set []*pb.ResponseMatch
	if len(m.GetAll()) > 0 {
		seq, err := responseMatches(m.GetAll(), depth)
		if err != nil {
			return nil, err
		}
		set = append(set, &pb.ResponseMatch{Match: &pb.ResponseMatch_All{All: seq}})
	}
	if len(m.GetAny()) > 0 {
		seq, err := responseMatches(m.GetAny(), depth)
		if err != nil {
			return nil, err
		}
		set = append(set, &pb.ResponseMatch{Match: &pb.ResponseMatch_Any{Any: seq}})
	}
	if m.GetStatus() != nil {
		if err := checkStatus(m.GetStatus()); err != nil {
			return nil, err
		}
		// As written: a proxy takes a bound that is missing for the other one.
		set = append(set, &pb.ResponseMatch{Match: &pb.ResponseMatch_Status{
			Status: &pb.HttpStatusRange{Min: m.GetStatus().GetMin(), Max: m.GetStatus().GetMax()},
		}})
	}
	if m.GetNot() != nil {
		not, err := responseMatch(m.GetNot(), depth+1)
		if err != nil {
			return nil, err
		}
		set = append(set, &pb.ResponseMatch{Match: &pb.ResponseMatch_Not{Not: not}})
	}
	switch len(set) {
	case 0:
		return nil, errNoMatch
	case 1:
		return set[0], nil
	default:
		return &pb.ResponseMatch{Match: &pb.ResponseMatch_All{All: &pb.ResponseMatch_Seq{Matches: set}}}, nil
	}
}

func responseMatches(all []*busv1.ResponseMatch, depth int) (*pb.ResponseMatch_Seq, error) {
	seq := &pb.ResponseMatch_Seq{}
	for _, m := range all {
		one, err := responseMatch(m, depth+1)
		if err != nil {
			return nil, err
		}
		seq.Matches = append(seq.Matches, one)
	}
	return seq, nil
}

// checkStatus judges a range; a bound that is missing is the other one.
func checkStatus(r *busv1.StatusRange) error {
	low, high := r.GetMin(), r.GetMax()
	if low == 0 {
		low = high
	}
	if high == 0 {
		high = low
	}
	switch {
	case low < 100 || low > 599 || high < 100 || high > 599:
		return errStatus
	case high < low:
		return errRange
	default:
		return nil
	}
}

// method names one that HTTP registers by its number, any other by its name.
func method(name string) *http_types.HttpMethod {
	upper := strings.ToUpper(name)
	if n, ok := http_types.HttpMethod_Registered_value[upper]; ok {
		return &http_types.HttpMethod{Type: &http_types.HttpMethod_Registered_{Registered: http_types.HttpMethod_Registered(n)}}
	}
	return &http_types.HttpMethod{Type: &http_types.HttpMethod_Unregistered{Unregistered: upper}}
}
