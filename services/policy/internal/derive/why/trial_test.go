package why_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/linkerd/linkerd2-proxy-api/go/http_route"
	"github.com/linkerd/linkerd2-proxy-api/go/inbound"
	"github.com/linkerd/linkerd2-proxy-api/go/meta"
	"github.com/linkerd/linkerd2-proxy-api/go/outbound"

	"github.com/weftmesh/weft/services/policy/internal/derive/why"
)

// expressions are as many routes, each with one expression for the path.
func expressions(n int, expression string) (in []*inbound.HttpRoute, out []*outbound.HttpRoute) {
	for i := range n {
		matches := []*http_route.HttpRouteMatch{{Path: &http_route.PathMatch{Kind: &http_route.PathMatch_Regex{Regex: expression}}}}
		name := &meta.Metadata{Kind: &meta.Metadata_Default{Default: fmt.Sprint("r", i)}}
		in = append(in, &inbound.HttpRoute{Metadata: name, Rules: []*inbound.HttpRoute_Rule{{Matches: matches}}})
		out = append(out, &outbound.HttpRoute{Metadata: name, Rules: []*outbound.HttpRoute_Rule{{Matches: matches}}})
	}
	return in, out
}

// TestAnAnswerCostsABoundedTime: a thousand large expressions, on the longest path
// that may be asked about, would take ten minutes to try if it began as they do. What
// is counted is the worst that a try may cost, so that the test need not wait for it.
func TestAnAnswerCostsABoundedTime(t *testing.T) {
	for name, c := range map[string]struct {
		routes     int
		expression string
		path       string
		want       bool
	}{
		"hostile":                  {1000, `/b(?:a*){900}`, "/" + strings.Repeat("a", 16000), true},
		"small and very many":      {30_000, `/v[0-9]+/x`, "/", true},
		"many, and an honest size": {2000, `/api/v[0-9]+/users/[^/]+/orders`, "/api/v1/users/amy/orders", false},
		"one, as large as may be":  {1, `/(?:a*){900}b`, "/" + strings.Repeat("a", 1600), false},
	} {
		t.Run(name, func(t *testing.T) {
			in, out := expressions(c.routes, c.expression)
			r := &why.Request{Method: "GET", Path: c.path}
			v := why.Explain(&inbound.Server{Protocol: &inbound.ProxyProtocol{Kind: &inbound.ProxyProtocol_Http1_{
				Http1: &inbound.ProxyProtocol_Http1{Routes: in},
			}}}, why.Client{Request: r})
			if v.TooMuch != c.want || v.TooMuch != (v.Outcome == why.Unknown) || v.TooMuch != strings.Contains(v.Reason, "too long to try") {
				t.Errorf("explained as %v, %q, too much: %v; want too much: %v", v.Outcome, v.Reason, v.TooMuch, c.want)
			}
			w := why.Follow(&outbound.OutboundPolicy{Protocol: &outbound.ProxyProtocol{Kind: &outbound.ProxyProtocol_Http1_{
				Http1: &outbound.ProxyProtocol_Http1{Routes: out},
			}}}, nil, r, "")
			if w.TooMuch != c.want || w.TooMuch && (w.Route != "" || !strings.Contains(w.Reason, "too long to try")) {
				t.Errorf("followed to %q, %q, too much: %v; want too much: %v", w.Route, w.Reason, w.TooMuch, c.want)
			}
		})
	}
}
