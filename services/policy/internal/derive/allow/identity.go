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

// identities turns a MeshTLSAuthentication into what the proxy matches. One
// entry that cannot be read spoils the whole: a half understood list of clients
// must not let anybody in.
func identities(c derive.Cluster, row *busv1.MeshTLSAuthentication) (*inbound.Authn, error) {
	out := &inbound.Authn_PermitMeshTLS_PermitClientIdentities{}
	for _, id := range row.GetIdentities() {
		if err := addIdentity(out, id); err != nil {
			return nil, err
		}
	}
	for _, ref := range row.GetIdentityRefs() {
		namespace := ref.GetNamespace()
		switch {
		case isCore(ref.GetGroup()) && strings.EqualFold(ref.GetKind(), "ServiceAccount") && ref.GetName() != "":
			if namespace == "" {
				namespace = row.GetNamespace()
			}
			out.Identities = append(out.Identities, &inbound.Identity{Name: c.ServiceAccountIdentity(namespace, ref.GetName())})
		case isCore(ref.GetGroup()) && strings.EqualFold(ref.GetKind(), "Namespace") && ref.GetName() != "":
			if err := addIdentity(out, "*."+c.NamespaceIdentities(ref.GetName())); err != nil {
				return nil, err
			}
		default:
			return nil, fmt.Errorf("identity reference of kind %q", ref.GetKind())
		}
	}
	if len(out.GetIdentities()) == 0 && len(out.GetSuffixes()) == 0 {
		return nil, errors.New("no identities")
	}
	return permit(out), nil
}

func addIdentity(out *inbound.Authn_PermitMeshTLS_PermitClientIdentities, id string) error {
	if id == "*" {
		out.Suffixes = append(out.Suffixes, &inbound.IdentitySuffix{})
		return nil
	}
	suffix, ok := strings.CutPrefix(id, "*.")
	if !ok {
		if id == "" {
			return errors.New("an identity is empty")
		}
		out.Identities = append(out.Identities, &inbound.Identity{Name: id})
		return nil
	}
	parts := strings.Split(suffix, ".")
	if slices.Contains(parts, "") {
		return fmt.Errorf("identity %q has an empty label", id)
	}
	out.Suffixes = append(out.Suffixes, &inbound.IdentitySuffix{Parts: parts})
	return nil
}

// exactly permits one identity.
func exactly(identity string) *inbound.Authn {
	return permit(&inbound.Authn_PermitMeshTLS_PermitClientIdentities{
		Identities: []*inbound.Identity{{Name: identity}},
	})
}

// anybody permits every client, with or without an identity.
func anybody() *inbound.Authn {
	return &inbound.Authn{Permit: &inbound.Authn_Unauthenticated{Unauthenticated: &inbound.Authn_PermitUnauthenticated{}}}
}

// anyIdentity permits every client that proves some identity.
func anyIdentity() *inbound.Authn {
	return permit(&inbound.Authn_PermitMeshTLS_PermitClientIdentities{
		Suffixes: []*inbound.IdentitySuffix{{}},
	})
}

func permit(ids *inbound.Authn_PermitMeshTLS_PermitClientIdentities) *inbound.Authn {
	return &inbound.Authn{Permit: &inbound.Authn_MeshTLS{MeshTLS: &inbound.Authn_PermitMeshTLS{
		Clients: &inbound.Authn_PermitMeshTLS_Identities{Identities: ids},
	}}}
}

func isCore(group string) bool { return group == "" || strings.EqualFold(group, "core") }

func isPolicy(group string) bool { return strings.EqualFold(group, groupPolicy) }
