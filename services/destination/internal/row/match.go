package row

import (
	"errors"
	"strings"

	pb "github.com/linkerd/linkerd2-proxy-api/go/destination"
	"github.com/linkerd/linkerd2-proxy-api/go/http_types"

	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
)

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

// requestMatch joins the fields that are set: all of them must hold. They come in
// Linkerd's order.
func requestMatch(m *busv1.RequestMatch, depth int) (*pb.RequestMatch, error) {
	if depth > maxDepth {
		return nil, errDepth
	}
	var set []*pb.RequestMatch
	all, err := eachMatch(m.GetAll(), depth, requestMatch)
	if err != nil {
		return nil, err
	}
	if len(all) > 0 {
		set = append(set, allRequests(all))
	}
	some, err := eachMatch(m.GetAny(), depth, requestMatch)
	if err != nil {
		return nil, err
	}
	if len(some) > 0 {
		set = append(set, &pb.RequestMatch{Match: &pb.RequestMatch_Any{Any: &pb.RequestMatch_Seq{Matches: some}}})
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
	return oneMatch(set, allRequests)
}

func allRequests(all []*pb.RequestMatch) *pb.RequestMatch {
	return &pb.RequestMatch{Match: &pb.RequestMatch_All{All: &pb.RequestMatch_Seq{Matches: all}}}
}

// responseMatch is requestMatch for answers.
func responseMatch(m *busv1.ResponseMatch, depth int) (*pb.ResponseMatch, error) {
	if depth > maxDepth {
		return nil, errDepth
	}
	var set []*pb.ResponseMatch
	all, err := eachMatch(m.GetAll(), depth, responseMatch)
	if err != nil {
		return nil, err
	}
	if len(all) > 0 {
		set = append(set, allResponses(all))
	}
	some, err := eachMatch(m.GetAny(), depth, responseMatch)
	if err != nil {
		return nil, err
	}
	if len(some) > 0 {
		set = append(set, &pb.ResponseMatch{Match: &pb.ResponseMatch_Any{Any: &pb.ResponseMatch_Seq{Matches: some}}})
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
	return oneMatch(set, allResponses)
}

func allResponses(all []*pb.ResponseMatch) *pb.ResponseMatch {
	return &pb.ResponseMatch{Match: &pb.ResponseMatch_All{All: &pb.ResponseMatch_Seq{Matches: all}}}
}

// eachMatch reads the members of a list, which are a level deeper.
func eachMatch[M, P any](list []M, depth int, read func(M, int) (P, error)) ([]P, error) {
	var out []P
	for _, m := range list {
		one, err := read(m, depth+1)
		if err != nil {
			return nil, err
		}
		out = append(out, one)
	}
	return out, nil
}

// oneMatch is what holds when all of a set do.
func oneMatch[P any](set []*P, all func([]*P) *P) (*P, error) {
	switch len(set) {
	case 0:
		return nil, errNoMatch
	case 1:
		return set[0], nil
	default:
		return all(set), nil
	}
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
