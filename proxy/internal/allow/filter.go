package allow

import (
	httppb "github.com/linkerd/linkerd2-proxy-api/go/http_route"
	pb "github.com/linkerd/linkerd2-proxy-api/go/inbound"
)

// A Filter changes a request that is allowed, or answers it.
type Filter struct {
	Add, Set []Header
	Remove   []string
	Redirect *Redirect
	// Fail is not empty if the request is answered 500 with it: a filter that is
	// unknown to this proxy must not be skipped. Ratio is how many are, of 1.
	Fail  string
	Ratio float64
}

// Header is one name and value.
type Header struct{ Name, Value string }

// Redirect answers with another place. Empty fields keep the request's.
type Redirect struct {
	Scheme, Host string
	Port         uint16
	Status       int
	Path         string // replaces the whole path
	Prefix       *string
}

const (
	failUnknown  = "server policy configured with unknown filter"
	failInjected = "unexpected error" // Linkerd's inbound does not map injected failures
)

func httpFilter(f *pb.HttpRoute_Filter) Filter {
	switch kind := f.GetKind().(type) {
	case *pb.HttpRoute_Filter_RequestHeaderModifier:
		return modifier(kind.RequestHeaderModifier)
	case *pb.HttpRoute_Filter_Redirect:
		return redirect(kind.Redirect)
	case *pb.HttpRoute_Filter_FailureInjector:
		return injected(kind.FailureInjector.GetRatio())
	}
	return unknown
}

func grpcFilter(f *pb.GrpcRoute_Filter) Filter {
	switch kind := f.GetKind().(type) {
	case *pb.GrpcRoute_Filter_RequestHeaderModifier:
		return modifier(kind.RequestHeaderModifier)
	case *pb.GrpcRoute_Filter_FailureInjector:
		return injected(kind.FailureInjector.GetRatio())
	}
	return unknown
}

var unknown = Filter{Fail: failUnknown, Ratio: 1}

// injected fails the share of requests that is asked for; no share, or one over
// nothing, is all of them.
func injected(r *httppb.Ratio) Filter {
	f := Filter{Fail: failInjected, Ratio: 1}
	if r.GetDenominator() > 0 {
		f.Ratio = min(1, float64(r.GetNumerator())/float64(r.GetDenominator()))
	}
	return f
}

func modifier(m *httppb.RequestHeaderModifier) Filter {
	f := Filter{Remove: m.GetRemove()}
	for _, h := range m.GetAdd().GetHeaders() {
		f.Add = append(f.Add, Header{h.GetName(), string(h.GetValue())})
	}
	for _, h := range m.GetSet().GetHeaders() {
		f.Set = append(f.Set, Header{h.GetName(), string(h.GetValue())})
	}
	return f
}

func redirect(r *httppb.RequestRedirect) Filter {
	out := &Redirect{Host: r.GetHost(), Status: int(r.GetStatus())}
	if out.Status == 0 {
		out.Status = 301
	}
	if out.Status < 300 || out.Status > 399 || r.GetPort() > 65535 {
		return unknown
	}
	out.Port = uint16(r.GetPort())
	if s := r.GetScheme(); s.GetType() != nil {
		switch {
		case s.GetUnregistered() != "":
			out.Scheme = s.GetUnregistered()
		case s.GetRegistered() == 1:
			out.Scheme = "https"
		default:
			out.Scheme = "http"
		}
	}
	switch p := r.GetPath().GetReplace().(type) {
	case *httppb.PathModifier_Full:
		out.Path = p.Full
	case *httppb.PathModifier_Prefix:
		out.Prefix = &p.Prefix
	}
	return Filter{Redirect: out}
}
