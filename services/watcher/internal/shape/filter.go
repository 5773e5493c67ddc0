package shape

import (
	"strconv"

	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
)

// filters makes the filters of a rule or backend, each with the one field that
// its type names.
func (r *router) filters(at string, list []filter) (out []*busv1.RouteFilter) {
	for i := range list {
		out = append(out, r.filter(at+".filters["+strconv.Itoa(i)+"]", &list[i]))
	}
	return out
}

func (r *router) filter(at string, f *filter) *busv1.RouteFilter {
	out := &busv1.RouteFilter{Type: f.Type}
	switch f.Type {
	case "RequestHeaderModifier":
		out.RequestHeaders = modifier(f.RequestHeaders)
	case "ResponseHeaderModifier":
		out.ResponseHeaders = modifier(f.ResponseHeaders)
	case "RequestRedirect":
		if to := f.Redirect; to != nil {
			out.Redirect = &busv1.Redirect{
				Scheme:   to.Scheme,
				Hostname: to.Hostname,
				Path:     pathRow(to.Path),
				Port:     r.number(at+".requestRedirect.port", to.Port),
				Status:   r.number(at+".requestRedirect.statusCode", or(to.StatusCode, 302)),
			}
		}
	case "URLRewrite":
		if to := f.Rewrite; to != nil {
			out.Rewrite = &busv1.UrlRewrite{Hostname: to.Hostname, Path: pathRow(to.Path)}
		}
	case "RequestMirror":
		out.Mirror = r.mirror(at+".requestMirror", f)
	case "ExtensionRef":
		if f.Extension != nil {
			out.Extension = refRow(*f.Extension)
		}
	}
	return out
}

// mirror copies every request unless a share is written.
func (r *router) mirror(at string, f *filter) *busv1.Mirror {
	to := f.Mirror
	if to == nil {
		return nil
	}
	out := &busv1.Mirror{Backend: r.backend(at+".backendRef", &to.BackendRef, 0), Numerator: 100, Denominator: 100}
	switch {
	case to.Fraction != nil:
		out.Numerator = r.number(at+".fraction.numerator", to.Fraction.Numerator)
		out.Denominator = r.number(at+".fraction.denominator", or(to.Fraction.Denominator, 100))
	case to.Percent != nil:
		out.Numerator = r.number(at+".percent", *to.Percent)
	}
	return out
}

func modifier(m *headerModifier) *busv1.HeaderModifier {
	if m == nil {
		return nil
	}
	values := func(list []typedValue) (out []*busv1.HeaderValue) {
		for _, h := range list {
			out = append(out, &busv1.HeaderValue{Name: h.Name, Value: h.Value})
		}
		return out
	}
	return &busv1.HeaderModifier{Set: values(m.Set), Add: values(m.Add), Remove: m.Remove}
}

func pathRow(p *pathModifier) *busv1.PathModifier {
	if p == nil {
		return nil
	}
	out := &busv1.PathModifier{Type: p.Type, Value: p.FullPath}
	if p.Type == "ReplacePrefixMatch" {
		out.Value = p.PrefixMatch
	}
	return out
}
