package route

import (
	"github.com/linkerd/linkerd2-proxy-api/go/http_route"

	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
)

// InboundFilter is what a server's proxy does with a request: one of the two is
// set.
type InboundFilter struct {
	Headers  *http_route.RequestHeaderModifier
	Redirect *http_route.RequestRedirect // HTTP only
}

// InboundFilters are the filters of one rule of a route on a Server; field is
// its path. A change of response headers is dropped, as in Linkerd: its inbound
// API cannot say it. Source: spec/destination-policy.md §8.
func InboundFilters(kind Kind, field string, rule *busv1.RouteRule) ([]InboundFilter, error) {
	var out []InboundFilter
	for i, f := range rule.GetFilters() {
		field := at(field+".filters", i)
		switch t := f.GetType(); {
		case t == "RequestHeaderModifier" && f.GetRequestHeaders() != nil:
			m, err := RequestHeaders(field+".requestHeaderModifier", f.GetRequestHeaders())
			if err != nil {
				return nil, err
			}
			out = append(out, InboundFilter{Headers: m})
		case t == "RequestRedirect" && kind == HTTP && f.GetRedirect() != nil:
			r, err := Redirect(field+".requestRedirect", f.GetRedirect())
			if err != nil {
				return nil, err
			}
			out = append(out, InboundFilter{Redirect: r})
		case t == "ResponseHeaderModifier":
		default:
			return nil, unsupported(field, f)
		}
	}
	return out, nil
}
