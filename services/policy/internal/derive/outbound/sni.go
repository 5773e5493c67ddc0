package outbound

import (
	"github.com/linkerd/linkerd2-proxy-api/go/tls_route"

	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
	"github.com/weftmesh/weft/services/policy/internal/derive/route"
)

// snis are the hosts of a TLSRoute.
func snis(row *busv1.Route) ([]*tls_route.SniMatch, error) {
	all, err := route.Hosts(row)
	if err != nil {
		return nil, err
	}
	var out []*tls_route.SniMatch
	for _, h := range all {
		m := &tls_route.SniMatch{Match: &tls_route.SniMatch_Exact{Exact: h.GetExact()}}
		if s := h.GetSuffix(); s != nil {
			m.Match = &tls_route.SniMatch_Suffix_{Suffix: &tls_route.SniMatch_Suffix{ReverseLabels: s.GetReverseLabels()}}
		}
		out = append(out, m)
	}
	return out, nil
}
