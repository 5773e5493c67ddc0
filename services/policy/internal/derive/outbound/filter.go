package outbound

import (
	"fmt"
	"strings"

	"github.com/linkerd/linkerd2-proxy-api/go/http_route"
	"github.com/linkerd/linkerd2-proxy-api/go/http_types"
	"github.com/linkerd/linkerd2-proxy-api/go/outbound"

	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
	routesv1 "github.com/weftmesh/weft/proto/gen/weft/routes/v1"
	"github.com/weftmesh/weft/services/policy/internal/derive/route"
)

// filters are those of a rule or of a backend: what Linkerd's API can say, and
// what only ours can.
type filters struct {
	http []*outbound.HttpRoute_Filter
	grpc []*outbound.GrpcRoute_Filter

	rewrite  *routesv1.Rewrite
	response *routesv1.HeaderModifier // of a GRPCRoute
	mirrors  []mirror

	// needs names the filters without which a request or its response would be
	// another one: a proxy that knows only Linkerd's API must fail instead.
	// Copies are no such thing.
	needs []string
}

// mirror is where copies go.
type mirror struct {
	backendRef
	numerator, denominator uint32
}

// extra says whether there is something that only our API can say.
func (f filters) extra() bool {
	return f.rewrite != nil || f.response != nil || len(f.mirrors) > 0
}

func newFilters(r *route.Route, field string, rows []*busv1.RouteFilter) (filters, error) {
	out := filters{needs: r.Lacks(rows)}
	for i, row := range rows {
		if err := out.add(r, fmt.Sprintf("%s[%d]", field, i), row); err != nil {
			return filters{}, err
		}
	}
	return out, nil
}

func (f *filters) add(r *route.Route, field string, row *busv1.RouteFilter) error {
	grpc := r.Kind == route.GRPC
	switch t := row.GetType(); {
	case t == "RequestHeaderModifier" && row.GetRequestHeaders() != nil:
		m, err := route.RequestHeaders(field+".requestHeaderModifier", row.GetRequestHeaders())
		if err != nil {
			return err
		}
		if grpc {
			f.grpc = append(f.grpc, &outbound.GrpcRoute_Filter{Kind: &outbound.GrpcRoute_Filter_RequestHeaderModifier{RequestHeaderModifier: m}})
		} else {
			f.http = append(f.http, &outbound.HttpRoute_Filter{Kind: &outbound.HttpRoute_Filter_RequestHeaderModifier{RequestHeaderModifier: m}})
		}
	case t == "ResponseHeaderModifier" && row.GetResponseHeaders() != nil:
		m, err := route.ResponseHeaders(field+".responseHeaderModifier", row.GetResponseHeaders())
		if err != nil {
			return err
		}
		if grpc {
			f.response = modifier(m)
		} else {
			f.http = append(f.http, &outbound.HttpRoute_Filter{Kind: &outbound.HttpRoute_Filter_ResponseHeaderModifier{ResponseHeaderModifier: m}})
		}
	case t == "RequestRedirect" && row.GetRedirect() != nil && !grpc:
		m, err := route.Redirect(field+".requestRedirect", row.GetRedirect())
		if err != nil {
			return err
		}
		f.http = append(f.http, &outbound.HttpRoute_Filter{Kind: &outbound.HttpRoute_Filter_Redirect{Redirect: m}})
	case t == "URLRewrite" && row.GetRewrite() != nil && !grpc:
		m, err := rewrite(field+".urlRewrite", row.GetRewrite())
		if err != nil {
			return err
		}
		f.rewrite = m
	case t == "RequestMirror" && row.GetMirror() != nil:
		if m, ok := newMirror(r, row.GetMirror()); ok {
			f.mirrors = append(f.mirrors, m)
		}
	default:
		return fmt.Errorf("%s.type: a filter of type %q is not supported here", field, t)
	}
	return nil
}

func rewrite(field string, row *busv1.UrlRewrite) (*routesv1.Rewrite, error) {
	path, err := route.PathChange(field+".path", row.GetPath())
	if err != nil {
		return nil, err
	}
	out := &routesv1.Rewrite{Host: strings.ToLower(row.GetHostname())}
	switch p := path.GetReplace().(type) {
	case *http_route.PathModifier_Full:
		out.Path = &routesv1.Rewrite_Full{Full: p.Full}
	case *http_route.PathModifier_Prefix:
		out.Path = &routesv1.Rewrite_Prefix{Prefix: p.Prefix}
	}
	return out, nil
}

// newMirror reads a mirror; false if it copies nothing. No fraction means all.
func newMirror(r *route.Route, row *busv1.Mirror) (mirror, bool) {
	m := mirror{
		backendRef: backendRef{ref: row.GetBackend(), to: backendOf(r, row.GetBackend())},
		numerator:  row.GetNumerator(), denominator: row.GetDenominator(),
	}
	if m.denominator == 0 {
		m.numerator, m.denominator = 1, 1
	}
	m.numerator = min(m.numerator, m.denominator)
	return m, m.numerator > 0
}

func modifier(m *http_route.ResponseHeaderModifier) *routesv1.HeaderModifier {
	return &routesv1.HeaderModifier{Add: list(m.GetAdd()), Set: list(m.GetSet()), Remove: m.GetRemove()}
}

func list(h *http_types.Headers) []*routesv1.Header {
	out := make([]*routesv1.Header, 0, len(h.GetHeaders()))
	for _, one := range h.GetHeaders() {
		out = append(out, &routesv1.Header{Name: strings.ToLower(one.GetName()), Value: one.GetValue()})
	}
	return out
}
