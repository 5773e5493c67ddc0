package allow

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/linkerd/linkerd2-proxy-api/go/inbound"
	"github.com/linkerd/linkerd2-proxy-api/go/meta"

	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
	"github.com/weftmesh/weft/services/policy/internal/derive"
)

const groupPolicy = "policy.linkerd.io"

// AuthenticationRef names an authentication that a policy refers to, whether it
// exists or not.
type AuthenticationRef struct {
	Network         bool // NetworkAuthentication; otherwise MeshTLSAuthentication
	Namespace, Name string
}

// Authentications finds what policies refer to, in any namespace; nil if it
// does not exist.
type Authentications interface {
	MeshTLS(namespace, name string) *busv1.MeshTLSAuthentication
	Network(namespace, name string) *busv1.NetworkAuthentication
}

// Policies is what one namespace says about its workloads.
type Policies struct {
	// Refs are the authentications that the answers depend on.
	Refs map[AuthenticationRef]struct{}
	// Problems are the policies that authorise nothing, with the reason.
	Problems []string

	servers    []*busv1.Server // oldest first, then by name
	byServer   map[string][]grant
	everywhere []grant // of policies that target the namespace
}

// grant is what one AuthorizationPolicy allows.
type grant struct {
	policy string
	authz  *inbound.Authz
}

// Resolve joins the rows of one namespace. The order of the rows does not
// matter.
func Resolve(c derive.Cluster, servers []*busv1.Server, policies []*busv1.AuthorizationPolicy, all Authentications) *Policies {
	p := &Policies{
		Refs:     map[AuthenticationRef]struct{}{},
		servers:  slices.Clone(servers),
		byServer: map[string][]grant{},
	}
	slices.SortFunc(p.servers, olderServer)
	policies = slices.Clone(policies)
	slices.SortFunc(policies, func(a, b *busv1.AuthorizationPolicy) int { return strings.Compare(a.GetName(), b.GetName()) })
	for _, row := range policies {
		g, err := p.resolve(c, row, all)
		if err == nil {
			err = p.attach(row, g)
		}
		if err != nil {
			p.Problems = append(p.Problems, fmt.Sprintf("authorization policy %s authorises nothing: %v", row.GetName(), err))
		}
	}
	return p
}

// olderServer orders Servers by age, then by name. Source: §8 "Selecting the
// Server". A Server of unknown age comes last.
func olderServer(a, b *busv1.Server) int {
	ageA, ageB := a.GetCreatedAt(), b.GetCreatedAt()
	switch {
	case ageA == ageB:
		return strings.Compare(a.GetName(), b.GetName())
	case ageA == 0:
		return 1
	case ageB == 0 || ageA < ageB:
		return -1
	}
	return 1
}

// attach puts a grant where its target says. Routes have their own answers, so
// a policy for a route must not open the Server that the route belongs to.
func (p *Policies) attach(row *busv1.AuthorizationPolicy, g grant) error {
	t := row.GetTarget()
	if t.GetNamespace() != "" && t.GetNamespace() != row.GetNamespace() {
		return errors.New("its target is in another namespace")
	}
	switch {
	case isPolicy(t.GetGroup()) && strings.EqualFold(t.GetKind(), "Server"):
		p.byServer[t.GetName()] = append(p.byServer[t.GetName()], g)
		return nil
	case isCore(t.GetGroup()) && strings.EqualFold(t.GetKind(), "Namespace"):
		if t.GetName() != row.GetNamespace() {
			return errors.New("its target is another namespace")
		}
		p.everywhere = append(p.everywhere, g)
		return nil
	}
	return fmt.Errorf("its target is of kind %q", t.GetKind())
}

// resolve reads the references of one policy. All of them must hold: at most
// one says who, at most one says from where. Source: §8 AuthorizationPolicy.
func (p *Policies) resolve(c derive.Cluster, row *busv1.AuthorizationPolicy, all Authentications) (grant, error) {
	authz := &inbound.Authz{
		Labels:   labelsOf(groupPolicy, "authorizationpolicy", row.GetName()),
		Metadata: resource("authorizationpolicy", row.GetName()),
	}
	var failed error
	for _, ref := range row.GetAuthentications() {
		// Every reference is visited even after a failure: the answer changes
		// when any of them does.
		if err := p.require(c, authz, row.GetNamespace(), ref, all); err != nil && failed == nil {
			failed = err
		}
	}
	if failed != nil {
		return grant{}, failed
	}
	if authz.Authentication == nil {
		authz.Authentication = anybody()
	}
	if authz.Networks == nil {
		authz.Networks = plainNetworks(derive.AllNetworks())
	}
	return grant{policy: row.GetName(), authz: authz}, nil
}

func (p *Policies) require(c derive.Cluster, authz *inbound.Authz, namespace string, ref *busv1.Ref, all Authentications) error {
	if ref.GetNamespace() != "" {
		namespace = ref.GetNamespace()
	}
	name := ref.GetName()
	if name == "" {
		return errors.New("a reference has no name")
	}
	switch kind := ref.GetKind(); {
	case isCore(ref.GetGroup()) && strings.EqualFold(kind, "ServiceAccount"):
		return who(authz, exactly(c.ServiceAccountIdentity(namespace, name)))
	case isPolicy(ref.GetGroup()) && strings.EqualFold(kind, "MeshTLSAuthentication"):
		p.Refs[AuthenticationRef{Namespace: namespace, Name: name}] = struct{}{}
		row := all.MeshTLS(namespace, name)
		if row == nil {
			return fmt.Errorf("mesh TLS authentication %s/%s does not exist", namespace, name)
		}
		authn, err := identities(c, row)
		if err != nil {
			return fmt.Errorf("mesh TLS authentication %s/%s: %w", namespace, name, err)
		}
		return who(authz, authn)
	case isPolicy(ref.GetGroup()) && strings.EqualFold(kind, "NetworkAuthentication"):
		p.Refs[AuthenticationRef{Network: true, Namespace: namespace, Name: name}] = struct{}{}
		row := all.Network(namespace, name)
		if row == nil {
			return fmt.Errorf("network authentication %s/%s does not exist", namespace, name)
		}
		nets, err := networks(row)
		if err != nil {
			return fmt.Errorf("network authentication %s/%s: %w", namespace, name, err)
		}
		if authz.Networks != nil {
			return errors.New("it refers to more than one network authentication")
		}
		authz.Networks = nets
		return nil
	default:
		return fmt.Errorf("it refers to kind %q of group %q", kind, ref.GetGroup())
	}
}

func who(authz *inbound.Authz, authn *inbound.Authn) error {
	if authz.Authentication != nil {
		return errors.New("it refers to more than one identity")
	}
	authz.Authentication = authn
	return nil
}

// labelsOf are what older proxies show instead of metadata.
func labelsOf(group, kind, name string) map[string]string {
	return map[string]string{"group": group, "kind": kind, "name": name}
}

func resource(kind, name string) *meta.Metadata {
	return &meta.Metadata{Kind: &meta.Metadata_Resource{Resource: &meta.Resource{Group: groupPolicy, Kind: kind, Name: name}}}
}

func byDefault(name string) *meta.Metadata {
	return &meta.Metadata{Kind: &meta.Metadata_Default{Default: name}}
}
