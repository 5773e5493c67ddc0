package route

import (
	"strings"

	"github.com/linkerd/linkerd2-proxy-api/go/http_route"
	"github.com/linkerd/linkerd2-proxy-api/go/http_types"
	"golang.org/x/net/http/httpguts"

	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
)

// RequestHeaders is a change of a request's headers; field is its path.
func RequestHeaders(field string, m *busv1.HeaderModifier) (*http_route.RequestHeaderModifier, error) {
	add, set, err := modify(field, m)
	if err != nil {
		return nil, err
	}
	return &http_route.RequestHeaderModifier{Add: add, Set: set, Remove: lower(m.GetRemove())}, nil
}

// ResponseHeaders is a change of a response's headers; field is its path.
func ResponseHeaders(field string, m *busv1.HeaderModifier) (*http_route.ResponseHeaderModifier, error) {
	add, set, err := modify(field, m)
	if err != nil {
		return nil, err
	}
	return &http_route.ResponseHeaderModifier{Add: add, Set: set, Remove: lower(m.GetRemove())}, nil
}

// lower is how names of headers are sent, as Linkerd does and HTTP/2 asks.
func lower(names []string) []string {
	var out []string
	for _, n := range names {
		out = append(out, strings.ToLower(n))
	}
	return out
}

func modify(field string, m *busv1.HeaderModifier) (add, set *http_types.Headers, err error) {
	if add, err = values(field+".add", m.GetAdd()); err != nil {
		return nil, nil, err
	}
	if set, err = values(field+".set", m.GetSet()); err != nil {
		return nil, nil, err
	}
	for i, name := range m.GetRemove() {
		if !httpguts.ValidHeaderFieldName(name) {
			return nil, nil, bad(at(field+".remove", i), "%q is not the name of a header", name)
		}
	}
	return add, set, nil
}

func values(field string, list []*busv1.HeaderValue) (*http_types.Headers, error) {
	if len(list) == 0 {
		return nil, nil
	}
	out := &http_types.Headers{}
	for i, h := range list {
		if !httpguts.ValidHeaderFieldName(h.GetName()) {
			return nil, bad(at(field, i)+".name", "%q is not the name of a header", h.GetName())
		}
		if !httpguts.ValidHeaderFieldValue(h.GetValue()) {
			return nil, bad(at(field, i)+".value", "%q cannot be the value of a header", h.GetValue())
		}
		out.Headers = append(out.Headers, &http_types.Headers_Header{Name: strings.ToLower(h.GetName()), Value: []byte(h.GetValue())})
	}
	return out, nil
}

// Redirect is an answer that sends the client elsewhere; field is its path.
func Redirect(field string, r *busv1.Redirect) (*http_route.RequestRedirect, error) {
	out := &http_route.RequestRedirect{Host: r.GetHostname(), Port: r.GetPort(), Status: r.GetStatus()}
	switch scheme := strings.ToLower(r.GetScheme()); scheme {
	case "":
	case "http":
		out.Scheme = &http_types.Scheme{Type: &http_types.Scheme_Registered_{Registered: http_types.Scheme_HTTP}}
	case "https":
		out.Scheme = &http_types.Scheme{Type: &http_types.Scheme_Registered_{Registered: http_types.Scheme_HTTPS}}
	default:
		return nil, bad(field+".scheme", "%q is not http or https", r.GetScheme())
	}
	if host := r.GetHostname(); host != "" && !httpguts.ValidHostHeader(host) {
		return nil, bad(field+".hostname", "%q is not a host", host)
	}
	if r.GetPort() > 65535 {
		return nil, bad(field+".port", "%d is not from 1 to 65535", r.GetPort())
	}
	switch s := r.GetStatus(); {
	case s == 0:
		out.Status = 302 // the Gateway API's default; a proxy's would be 301
	case s < 300 || s > 399:
		return nil, bad(field+".statusCode", "%d is not a redirection", s)
	}
	var err error
	out.Path, err = PathChange(field+".path", r.GetPath())
	return out, err
}

// PathChange replaces a path or its matched prefix; field is its path.
func PathChange(field string, p *busv1.PathModifier) (*http_route.PathModifier, error) {
	if p == nil {
		return nil, nil
	}
	switch p.GetType() {
	case "ReplaceFullPath":
		if !strings.HasPrefix(p.GetValue(), "/") {
			return nil, bad(field+".replaceFullPath", "%q does not begin with /", p.GetValue())
		}
		return &http_route.PathModifier{Replace: &http_route.PathModifier_Full{Full: p.GetValue()}}, nil
	case "ReplacePrefixMatch":
		if !strings.HasPrefix(p.GetValue(), "/") {
			return nil, bad(field+".replacePrefixMatch", "%q does not begin with /", p.GetValue())
		}
		return &http_route.PathModifier{Replace: &http_route.PathModifier_Prefix{Prefix: p.GetValue()}}, nil
	}
	return nil, bad(field+".type", "%q is not ReplaceFullPath or ReplacePrefixMatch", p.GetType())
}
