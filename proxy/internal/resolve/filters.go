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
		var got Filter
		var err error
		switch k := f.GetKind().(type) {
		case *outpb.HttpRoute_Filter_FailureInjector:
			in := k.FailureInjector
			status := int(in.GetStatus())
			if status < 100 || status > 999 {
				return nil, fmt.Errorf("an injected status of %d", status)
			}
			got.Fail = &Fail{Status: status, Message: in.GetMessage(), Ratio: ratioOf(in.GetRatio())}
		case *outpb.HttpRoute_Filter_RequestHeaderModifier:
			got.Request, err = modifyOf(k.RequestHeaderModifier)
		case *outpb.HttpRoute_Filter_ResponseHeaderModifier:
			got.Response, err = modifyOf(k.ResponseHeaderModifier)
		case *outpb.HttpRoute_Filter_Redirect:
			got.Redirect, err = redirectOf(k.Redirect)
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
			out = append(out, Filter{Fail: &Fail{Status: int(in.GetCode()), GRPC: true, Message: in.GetMessage(), Ratio: ratioOf(in.GetRatio())}})
		case *outpb.GrpcRoute_Filter_RequestHeaderModifier:
			m, err := modifyOf(k.RequestHeaderModifier)
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

// ratioOf is a share of 1; no ratio, or one over nothing, is always.
func ratioOf(r *routepb.Ratio) float64 {
	if r.GetDenominator() == 0 {
		return 1
	}
	return min(1, float64(r.GetNumerator())/float64(r.GetDenominator()))
}

// modifier is one of either direction.
type modifier interface {
	GetAdd() *typespb.Headers
	GetSet() *typespb.Headers
	GetRemove() []string
}

func modifyOf(m modifier) (*Modify, error) {
	add, set := fields(m.GetAdd()), fields(m.GetSet())
	out := &Modify{Add: add, Set: set, Remove: m.GetRemove()}
	return out, out.check()
}

func fields(h *typespb.Headers) []Header {
	var out []Header
	for _, f := range h.GetHeaders() {
		out = append(out, Header{f.GetName(), string(f.GetValue())})
	}
	return out
}

func redirectOf(r *routepb.RequestRedirect) (*Redirect, error) {
	out := &Redirect{Host: r.GetHost(), Port: int(r.GetPort()), Status: int(r.GetStatus())}
	if out.Status < 300 || out.Status > 399 {
		out.Status = 301
	}
	if r.GetScheme() != nil {
		if out.Scheme = schemeOf(r.GetScheme()); out.Scheme == "" {
			return nil, errors.New("a redirect to a scheme that is not known")
		}
	}
	switch p := r.GetPath().GetReplace().(type) {
	case *routepb.PathModifier_Full:
		out.Full = p.Full
	case *routepb.PathModifier_Prefix:
		out.Prefix = &p.Prefix
	}
	return out, out.check()
}

// schemeOf is "" for what is none.
func schemeOf(s *typespb.Scheme) string {
	switch k := s.GetType().(type) {
	case *typespb.Scheme_Unregistered:
		if s := lower(k.Unregistered); isScheme(s) {
			return s
		}
	case *typespb.Scheme_Registered_:
		return lower(typespb.Scheme_Registered_name[int32(k.Registered)])
	}
	return ""
}

func quote(s string) string { return regexp.QuoteMeta(s) }
