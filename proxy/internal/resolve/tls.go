package resolve

import (
	"errors"
	"strings"

	outpb "github.com/linkerd/linkerd2-proxy-api/go/outbound"
	tlspb "github.com/linkerd/linkerd2-proxy-api/go/tls_route"
)

// tls takes the routes of TLS connections.
func (p *Policy) tls(routes []*outpb.TlsRoute) error {
	for _, r := range routes {
		route, err := tlsOf(r)
		if err != nil {
			return err
		}
		p.TLS = append(p.TLS, route)
	}
	return nil
}

func tlsOf(r *outpb.TlsRoute) (TLSRoute, error) {
	var out TLSRoute
	var err error
	if out.Ref, err = refOf(r.GetMetadata()); err != nil {
		return out, err
	}
	if out.SNIs, err = snisOf(r.GetSnis()); err != nil {
		return out, err
	}
	if len(r.GetRules()) != 1 {
		return out, errors.New("a TLS route has one rule")
	}
	rule := r.GetRules()[0]
	if out.Closes, err = closingOf(rule.GetFilters()); err != nil {
		return out, err
	}
	d := rule.GetBackends()
	if _, none := d.GetKind().(*outpb.TlsRoute_Distribution_Empty_); none {
		return out, nil
	}
	return out, addBackends(&out.Split, d.GetFirstAvailable().GetBackends(), d.GetRandomAvailable().GetBackends(), closing[*outpb.TlsRoute_Filter])
}

func snisOf(all []*tlspb.SniMatch) ([]HostMatch, error) {
	var out []HostMatch
	for _, m := range all {
		switch m := m.GetMatch().(type) {
		case *tlspb.SniMatch_Exact:
			out = append(out, HostMatch{Exact: lower(m.Exact)})
		case *tlspb.SniMatch_Suffix_:
			out = append(out, HostMatch{Suffix: suffixOf(m.Suffix.GetReverseLabels())})
		default:
			return nil, errors.New("a name match that is not known")
		}
	}
	return out, nil
}

// suffixOf is a suffix with its leading dot; "*.example.com" comes as [com, example].
func suffixOf(reversed []string) string {
	suffix := ""
	for _, label := range reversed {
		suffix = "." + label + suffix
	}
	return lower(suffix)
}

// SelectTLS returns the place of the route for a name: an exact name comes before
// a suffix, a longer suffix before a shorter one, and a route for every name comes
// last; of equals the first wins. It is -1 if none takes it.
func SelectTLS(routes []TLSRoute, sni string) int {
	best, found := 0, -1
	sni = strings.ToLower(sni)
	for i := range routes {
		if rank, ok := rankHost(routes[i].SNIs, sni); ok && (found < 0 || rank > best) {
			best, found = rank, i
		}
	}
	return found
}
