package allow

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/linkerd/linkerd2-proxy-api/go/inbound"

	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
	"github.com/weftmesh/weft/services/policy/internal/derive"
)

// authorizations joins the ServerAuthorizations.
func (p *Policies) authorizations(c derive.Cluster, rows []*busv1.ServerAuthorization) {
	rows = slices.Clone(rows)
	slices.SortFunc(rows, func(a, b *busv1.ServerAuthorization) int { return strings.Compare(a.GetName(), b.GetName()) })
	for _, row := range rows {
		g, err := authorization(c, row)
		if err == nil && (row.GetServer() == "") == (row.GetServers() == nil) {
			err = errors.New("it must name a server or select servers by their labels")
		}
		if err != nil {
			p.Problems = append(p.Problems, fmt.Sprintf("server authorization %s authorises nothing: %v", row.GetName(), err))
			continue
		}
		p.allow(g, func(s *busv1.Server) bool {
			if row.GetServer() != "" {
				return row.GetServer() == s.GetName()
			}
			return matches(row.GetServers(), labels{own: s.GetLabels()})
		})
	}
}

// authorization reads one. Any part that cannot be understood spoils the whole.
// Source: spec/destination-policy.md §8 ServerAuthorization.
func authorization(c derive.Cluster, row *busv1.ServerAuthorization) (grant, error) {
	const kind = "serverauthorization"
	authz := &inbound.Authz{
		Labels:   labelsOf(groupPolicy, kind, row.GetName()),
		Metadata: resource(kind, row.GetName()),
		Networks: plainNetworks(c.Networks),
	}
	var err error
	if len(row.GetNetworks()) > 0 {
		if authz.Networks, err = networks(row.GetNetworks()); err != nil {
			return grant{}, fmt.Errorf("client.networks: %w", err)
		}
	}
	authz.Authentication, err = clientsOf(c, row)
	return grant{kind: kind, name: row.GetName(), authz: authz}, err
}

func clientsOf(c derive.Cluster, row *busv1.ServerAuthorization) (*inbound.Authn, error) {
	named := len(row.GetIdentities()) > 0 || len(row.GetServiceAccounts()) > 0
	switch {
	case row.GetUnauthenticated() && (row.GetMeshTls() || row.GetUnauthenticatedTls() || named):
		return nil, errors.New("client.unauthenticated and client.meshTLS exclude each other")
	case row.GetUnauthenticated():
		return anybody(), nil
	case row.GetUnauthenticatedTls() && named:
		return nil, errors.New("client.meshTLS.unauthenticatedTLS excludes identities and serviceAccounts")
	case row.GetUnauthenticatedTls():
		return &inbound.Authn{Permit: &inbound.Authn_MeshTLS{MeshTLS: &inbound.Authn_PermitMeshTLS{
			Clients: &inbound.Authn_PermitMeshTLS_Unauthenticated{Unauthenticated: &inbound.Authn_PermitUnauthenticated{}},
		}}}, nil
	case !named:
		return nil, errors.New("client names nobody")
	}
	out := &inbound.Authn_PermitMeshTLS_PermitClientIdentities{}
	for _, id := range row.GetIdentities() {
		if err := addIdentity(out, id); err != nil {
			return nil, err
		}
	}
	for _, ref := range row.GetServiceAccounts() {
		namespace := ref.GetNamespace()
		if namespace == "" {
			namespace = row.GetNamespace()
		}
		if ref.GetName() == "" {
			return nil, errors.New("a service account has no name")
		}
		out.Identities = append(out.Identities, &inbound.Identity{Name: c.ServiceAccountIdentity(namespace, ref.GetName())})
	}
	return permit(out), nil
}
