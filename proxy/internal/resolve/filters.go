package resolve

import (
	"errors"
	"fmt"
	"regexp"

	outpb "github.com/linkerd/linkerd2-proxy-api/go/outbound"

	"github.com/weftmesh/weft/proxy/internal/change"
)

// An unknown filter makes the whole policy invalid: leaving it out could let
// through what it was to stop.
var errFilter = errors.New("a filter that is not known")

func httpFilters(all []*outpb.HttpRoute_Filter) ([]Filter, error) {
	var out []Filter
	for _, f := range all {
		var got Filter
		var err error
		switch k := f.GetKind().(type) {
		case *outpb.HttpRoute_Filter_FailureInjector:
			in := k.FailureInjector
			status := int(in.GetStatus())
			if status < 100 || status > 999 {
				return nil, fmt.Errorf("an injected status of %d", status)
			}
			got.Fail = &Fail{Status: status, Message: in.GetMessage(), Ratio: change.RatioOf(in.GetRatio())}
		case *outpb.HttpRoute_Filter_RequestHeaderModifier:
			got.Request, err = change.ModifyOf(k.RequestHeaderModifier)
		case *outpb.HttpRoute_Filter_ResponseHeaderModifier:
			got.Response, err = change.ModifyOf(k.ResponseHeaderModifier)
		case *outpb.HttpRoute_Filter_Redirect:
			got.Redirect, err = change.RedirectOf(k.Redirect)
		default:
			return nil, errFilter
		}
		if err != nil {
			return nil, err
		}
		out = append(out, got)
	}
	return out, nil
}

func grpcFilters(all []*outpb.GrpcRoute_Filter) ([]Filter, error) {
	var out []Filter
	for _, f := range all {
		switch k := f.GetKind().(type) {
		case *outpb.GrpcRoute_Filter_FailureInjector:
			in := k.FailureInjector
			out = append(out, Filter{Fail: &Fail{Status: int(in.GetCode()), GRPC: true, Message: in.GetMessage(), Ratio: change.RatioOf(in.GetRatio())}})
		case *outpb.GrpcRoute_Filter_RequestHeaderModifier:
			m, err := change.ModifyOf(k.RequestHeaderModifier)
			if err != nil {
				return nil, err
			}
			out = append(out, Filter{Request: m})
		default:
			return nil, errFilter
		}
	}
	return out, nil
}

func quote(s string) string { return regexp.QuoteMeta(s) }
