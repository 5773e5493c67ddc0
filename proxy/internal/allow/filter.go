package allow

import (
	httppb "github.com/linkerd/linkerd2-proxy-api/go/http_route"
	pb "github.com/linkerd/linkerd2-proxy-api/go/inbound"

	"github.com/weftmesh/weft/proxy/internal/change"
)

// A Filter changes a request that is allowed, or answers it.
type Filter struct {
	Request  *change.Modify
	Redirect *change.Redirect
	// Fail is not empty if the request is answered 500 with it: a filter that is
	// unknown to this proxy must not be skipped. Ratio is how many are, of 1.
	Fail  string
	Ratio float64
}

const (
	failUnknown  = "server policy configured with unknown filter"
	failInjected = "unexpected error" // Linkerd's inbound does not map injected failures
)

func httpFilter(f *pb.HttpRoute_Filter) (out Filter, err error) {
	switch kind := f.GetKind().(type) {
	case *pb.HttpRoute_Filter_RequestHeaderModifier:
		out.Request, err = change.ModifyOf(kind.RequestHeaderModifier)
	case *pb.HttpRoute_Filter_Redirect:
		out.Redirect, err = change.RedirectOf(kind.Redirect)
	case *pb.HttpRoute_Filter_FailureInjector:
		out = injected(kind.FailureInjector.GetRatio())
	default:
		out = unknown
	}
	return out, err
}

func grpcFilter(f *pb.GrpcRoute_Filter) (out Filter, err error) {
	switch kind := f.GetKind().(type) {
	case *pb.GrpcRoute_Filter_RequestHeaderModifier:
		out.Request, err = change.ModifyOf(kind.RequestHeaderModifier)
	case *pb.GrpcRoute_Filter_FailureInjector:
		out = injected(kind.FailureInjector.GetRatio())
	default:
		out = unknown
	}
	return out, err
}

var unknown = Filter{Fail: failUnknown, Ratio: 1}

func injected(r *httppb.Ratio) Filter {
	return Filter{Fail: failInjected, Ratio: change.RatioOf(r)}
}
