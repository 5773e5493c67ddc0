package resolve

import (
	"errors"
	"fmt"
	"regexp"

	routepb "github.com/linkerd/linkerd2-proxy-api/go/http_route"
	typespb "github.com/linkerd/linkerd2-proxy-api/go/http_types"
	outpb "github.com/linkerd/linkerd2-proxy-api/go/outbound"
)

// An unknown filter makes the whole policy invalid: leaving it out could let
// through what it was to stop.
var errFilter = errors.New("a filter that is not known")

func httpFilters(all []*outpb.HttpRoute_Filter) ([]Filter, error) {
	var out []Filter
	for _, f := range all {
		switch k := f.GetKind().(type) {
		case *outpb.HttpRoute_Filter_FailureInjector:
			in := k.FailureInjector
			status := int(in.GetStatus())
			if status < 100 || status > 999 {
				return nil, fmt.Errorf("an injected status of %d", status)
			}
			out = append(out, Filter{Fail: &Fail{Status: status, Message: in.GetMessage(), Ratio: ratioOf(in.GetRatio())}})
		case *outpb.HttpRoute_Filter_RequestHeaderModifier:
			out = append(out, Filter{Request: requestModify(k.RequestHeaderModifier)})
		case *outpb.HttpRoute_Filter_ResponseHeaderModifier:
			m := k.ResponseHeaderModifier
			out = append(out, Filter{Response: &Modify{Add: fields(m.GetAdd()), Set: fields(m.GetSet()), Remove: m.GetRemove()}})
		case *outpb.HttpRoute_Filter_Redirect:
			out = append(out, Filter{Redirect: redirectOf(k.Redirect)})
		default:
			return nil, errFilter
		}
	}
	return out, nil
}

func grpcFilters(all []*outpb.GrpcRoute_Filter) ([]Filter, error) {
	var out []Filter
	for _, f := range all {
		switch k := f.GetKind().(type) {
		case *outpb.GrpcRoute_Filter_FailureInjector:
			in := k.FailureInjector
			out = append(out, Filter{Fail: &Fail{Status: int(in.GetCode()), GRPC: true, Message: in.GetMessage(), Ratio: ratioOf(in.GetRatio())}})
		case *outpb.GrpcRoute_Filter_RequestHeaderModifier:
			out = append(out, Filter{Request: requestModify(k.RequestHeaderModifier)})
		default:
			return nil, errFilter
		}
	}
	return out, nil
}

// ratioOf is a share of 1; no ratio, or one over nothing, is always.
func ratioOf(r *routepb.Ratio) float64 {
	if r.GetDenominator() == 0 {
		return 1
	}
	return min(1, float64(r.GetNumerator())/float64(r.GetDenominator()))
}

func requestModify(m *routepb.RequestHeaderModifier) *Modify {
	return &Modify{Add: fields(m.GetAdd()), Set: fields(m.GetSet()), Remove: m.GetRemove()}
}

func fields(h *typespb.Headers) []Header {
	var out []Header
	for _, f := range h.GetHeaders() {
		out = append(out, Header{f.GetName(), string(f.GetValue())})
	}
	return out
}

func redirectOf(r *routepb.RequestRedirect) *Redirect {
	out := &Redirect{Host: r.GetHost(), Port: int(r.GetPort()), Status: int(r.GetStatus())}
	if out.Status < 300 || out.Status > 399 {
		out.Status = 301
	}
	if r.GetScheme() != nil {
		out.Scheme = schemeOf(r.GetScheme())
	}
	switch p := r.GetPath().GetReplace().(type) {
	case *routepb.PathModifier_Full:
		out.Full = p.Full
	case *routepb.PathModifier_Prefix:
		out.Prefix = &p.Prefix
	}
	return out
}

func schemeOf(s *typespb.Scheme) string {
	if u, ok := s.GetType().(*typespb.Scheme_Unregistered); ok {
		return lower(u.Unregistered)
	}
	return lower(s.GetRegistered().String())
}

func quote(s string) string { return regexp.QuoteMeta(s) }
