package allow

import (
	"github.com/linkerd/linkerd2-proxy-api/go/inbound"

	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
	"github.com/weftmesh/weft/services/policy/internal/derive"
)

// limits gives each Server the rate limit that is accepted for it.
func (p *Policies) limits(c derive.Cluster, rows []*busv1.RateLimit) {
	for _, row := range rows {
		for _, s := range p.servers {
			if s.row.GetName() == row.GetTarget().GetName() {
				s.limit = limitOf(c, row)
			}
		}
	}
}

// limitOf is a rate limit as proxies know it. A limit that is not set is left
// out: 0 would let nobody in.
func limitOf(c derive.Cluster, row *busv1.RateLimit) *inbound.HttpLocalRateLimit {
	out := &inbound.HttpLocalRateLimit{
		Metadata: resource("HTTPLocalRateLimitPolicy", row.GetName()),
		Total:    rate(row.GetTotal()),
		Identity: rate(row.GetIdentity()),
	}
	for _, o := range row.GetOverrides() {
		clients := &inbound.HttpLocalRateLimit_Override_ClientIdentities{}
		for _, ref := range o.GetClients() {
			namespace := ref.GetNamespace()
			if namespace == "" {
				namespace = row.GetNamespace()
			}
			clients.Identities = append(clients.Identities, &inbound.Identity{Name: c.ServiceAccountIdentity(namespace, ref.GetName())})
		}
		out.Overrides = append(out.Overrides, &inbound.HttpLocalRateLimit_Override{
			Limit: rate(o.GetRequestsPerSecond()), Clients: clients,
		})
	}
	return out
}

func rate(perSecond uint32) *inbound.HttpLocalRateLimit_Limit {
	if perSecond == 0 {
		return nil
	}
	return &inbound.HttpLocalRateLimit_Limit{RequestsPerSecond: perSecond}
}
