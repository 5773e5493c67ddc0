package shape

import (
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weftmesh/weft/bus"
	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
)

// serverAuthorizationRows makes a ServerAuthorization's row.
func serverAuthorizationRows(a *ServerAuthorization) ([]Row, *Problem) {
	client := &a.Spec.Client
	row := &busv1.ServerAuthorization{
		Namespace:       a.Namespace,
		Name:            a.Name,
		Uid:             string(a.UID),
		Server:          a.Spec.Server.Name,
		Networks:        networksAsWritten(client.Networks),
		Unauthenticated: client.Unauthenticated,
		CreatedAt:       created(a),
	}
	var wrong *Problem
	if row.Servers, wrong = selector(ServerAuthorizations, a, "spec.server.selector", a.Spec.Server.Selector); wrong != nil {
		return nil, wrong
	}
	if tls := client.MeshTLS; tls != nil {
		row.MeshTls = true
		row.UnauthenticatedTls = tls.UnauthenticatedTLS
		row.Identities = tls.Identities
		for _, sa := range tls.ServiceAccounts {
			row.ServiceAccounts = append(row.ServiceAccounts, &busv1.Ref{Name: sa.Name, Namespace: sa.Namespace})
		}
	}
	return []Row{{busv1.Table_TABLE_SERVER_AUTHORIZATIONS, bus.Key(a.Namespace, a.Name), row}}, nil
}

// networksAsWritten mends what can be mended, a single address, and leaves the
// rest for who derives answers to judge: a network left out would widen or
// narrow what was meant.
func networksAsWritten(list []Network) (out []*busv1.Network) {
	text := func(s string) string {
		if cidr, ok := network(s); ok {
			return cidr
		}
		return s
	}
	for _, n := range list {
		row := &busv1.Network{Cidr: text(n.CIDR)}
		for _, e := range n.Except {
			row.Except = append(row.Except, text(e))
		}
		out = append(out, row)
	}
	return out
}

// rateLimitRows makes an HTTPLocalRateLimitPolicy's row.
func rateLimitRows(l *RateLimit) ([]Row, *Problem) {
	row := &busv1.RateLimit{
		Namespace:  l.Namespace,
		Name:       l.Name,
		Uid:        string(l.UID),
		CreatedAt:  created(l),
		Generation: l.Generation,
		Target:     refRow(l.Spec.TargetRef),
	}
	var wrong *Problem
	if row.Total, wrong = rate(l, "spec.total", l.Spec.Total); wrong != nil {
		return nil, wrong
	}
	if row.Identity, wrong = rate(l, "spec.identity", l.Spec.Identity); wrong != nil {
		return nil, wrong
	}
	for i, o := range l.Spec.Overrides {
		out := new(busv1.RateOverride)
		if out.RequestsPerSecond, wrong = rate(l, "spec.overrides["+strconv.Itoa(i)+"]", &o.Rate); wrong != nil {
			return nil, wrong
		}
		for _, c := range o.ClientRefs {
			out.Clients = append(out.Clients, refRow(c))
		}
		row.Overrides = append(row.Overrides, out)
	}
	return []Row{{busv1.Table_TABLE_RATE_LIMITS, bus.Key(l.Namespace, l.Name), row}}, nil
}

func rate(obj metav1.Object, field string, r *Rate) (uint32, *Problem) {
	if r == nil {
		return 0, nil
	}
	return number(RateLimits, obj, field+".requestsPerSecond", r.RequestsPerSecond)
}

// egressRows makes an EgressNetwork's row.
func egressRows(e *EgressNetwork) []Row {
	return []Row{{busv1.Table_TABLE_EGRESS_NETWORKS, bus.Key(e.Namespace, e.Name), &busv1.EgressNetwork{
		Namespace:     e.Namespace,
		Name:          e.Name,
		Uid:           string(e.UID),
		CreatedAt:     created(e),
		Generation:    e.Generation,
		TrafficPolicy: e.Spec.TrafficPolicy,
		Networks:      networksAsWritten(e.Spec.Networks),
		NoNetworks:    e.Spec.Networks != nil && len(e.Spec.Networks) == 0,
		Annotations:   pick(e.Annotations, MeshAnnotation),
	}}}
}

// linkRows makes a Link's row.
func linkRows(l *Link) []Row {
	return []Row{{busv1.Table_TABLE_LINKS, bus.Key(l.Namespace, l.Name), &busv1.Link{
		Namespace:           l.Namespace,
		Name:                l.Name,
		Uid:                 string(l.UID),
		TargetCluster:       l.Spec.TargetClusterName,
		TargetClusterDomain: l.Spec.TargetClusterDomain,
	}}}
}
