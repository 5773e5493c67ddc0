package outbound

import (
	"slices"

	"github.com/linkerd/linkerd2-proxy-api/go/http_route"
	"github.com/linkerd/linkerd2-proxy-api/go/tls_route"
	"google.golang.org/protobuf/proto"

	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
	"github.com/weftmesh/weft/services/policy/internal/derive/route"
)

// hosts are a route's hosts, each once: a proxy would refuse the whole answer
// over hosts that differ only in case (complaint D10).
func hosts(row *busv1.Route) ([]*http_route.HostMatch, error) {
	all, err := route.Hosts(row)
	if err != nil {
		return nil, err //nolint:wrapcheck // it names the field
	}
	var out []*http_route.HostMatch
	for _, h := range all {
		if !slices.ContainsFunc(out, func(o *http_route.HostMatch) bool { return proto.Equal(h, o) }) {
			out = append(out, h)
		}
	}
	return out, nil
}

// snis are the hosts of a TLSRoute.
func snis(row *busv1.Route) ([]*tls_route.SniMatch, error) {
	all, err := hosts(row)
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
