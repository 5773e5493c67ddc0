package allow

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/linkerd/linkerd2-proxy-api/go/inbound"
	"github.com/linkerd/linkerd2-proxy-api/go/meta"

	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
	"github.com/weftmesh/weft/services/policy/internal/derive"
	"github.com/weftmesh/weft/services/policy/internal/derive/route"
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

// Objects are the rows of one namespace that say who may come in.
type Objects struct {
	Servers        []*busv1.Server
	Policies       []*busv1.AuthorizationPolicy
	Authorizations []*busv1.ServerAuthorization
	// Routes are those that a Server has accepted, by its name.
	Routes map[string][]*route.Route
	// Limits are the rate limits that are accepted: at most one a Server.
	Limits []*busv1.RateLimit
}

// Policies is what one namespace says about its workloads.
type Policies struct {
	// Refs are the authentications that the answers depend on.
	Refs map[AuthenticationRef]struct{}
	// Problems are the policies that authorise nothing, with the reason.
	Problems []string

	servers []*server // oldest first, then by name
	byRoute map[routeRef][]grant
}

// server is a Server with all that is said about it.
type server struct {
	row    *busv1.Server
	grants []grant
	http   []*inbound.HttpRoute // none: the default ones hold
	grpc   []*inbound.GrpcRoute
	limit  *inbound.HttpLocalRateLimit
}

// routeRef names a route as a policy's target does, in lower case.
type routeRef struct{ group, kind, name string }

// grant is what one policy or authorization allows.
type grant struct {
	kind, name string
	authz      *inbound.Authz
}

// sortGrants puts what allows in an order that does not depend on arrival.
func sortGrants(list []grant) {
	slices.SortFunc(list, func(a, b grant) int {
		return cmp.Or(strings.Compare(a.name, b.name), strings.Compare(a.kind, b.kind))
	})
}

// Resolve joins the rows of one namespace. The order of the rows does not
// matter.
func Resolve(c derive.Cluster, objects Objects, all Authentications) *Policies {
	p := &Policies{
		Refs:    map[AuthenticationRef]struct{}{},
		byRoute: map[routeRef][]grant{},
	}
	for _, row := range objects.Servers {
		p.servers = append(p.servers, &server{row: row})
	}
	slices.SortFunc(p.servers, func(a, b *server) int { return olderServer(a.row, b.row) })
	p.policies(c, objects.Policies, all)
	p.authorizations(c, objects.Authorizations)
	for _, s := range p.servers {
		sortGrants(s.grants)
		p.routes(s, objects.Routes[s.row.GetName()])
	}
	p.limits(c, objects.Limits)
	return p
}

// policies joins the AuthorizationPolicies.
func (p *Policies) policies(c derive.Cluster, rows []*busv1.AuthorizationPolicy, all Authentications) {
	rows = slices.Clone(rows)
	slices.SortFunc(rows, func(a, b *busv1.AuthorizationPolicy) int { return strings.Compare(a.GetName(), b.GetName()) })
	for _, row := range rows {
		g, err := p.resolve(c, row, all)
		if err == nil {
			err = p.attach(row, g)
		}
		if err != nil {
			p.Problems = append(p.Problems, fmt.Sprintf("authorization policy %s authorises nothing: %v", row.GetName(), err))
		}
	}
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

// attach puts a grant where its target says. A policy for a route must not open
// the Server that the route belongs to.
func (p *Policies) attach(row *busv1.AuthorizationPolicy, g grant) error {
	t := row.GetTarget()
	if t.GetNamespace() != "" && t.GetNamespace() != row.GetNamespace() {
		return errors.New("its target is in another namespace")
	}
	kind := strings.ToLower(t.GetKind())
	switch {
	case isPolicy(t.GetGroup()) && kind == "server":
		p.allow(g, func(s *busv1.Server) bool { return s.GetName() == t.GetName() })
		return nil
	case isCore(t.GetGroup()) && kind == "namespace":
		if t.GetName() != row.GetNamespace() {
			return errors.New("its target is another namespace")
		}
		p.allow(g, func(*busv1.Server) bool { return true })
		return nil
	case isPolicy(t.GetGroup()) && kind == "httproute",
		strings.EqualFold(t.GetGroup(), route.GroupGateway) && (kind == "httproute" || kind == "grpcroute"):
		ref := routeRef{strings.ToLower(t.GetGroup()), kind, t.GetName()}
		p.byRoute[ref] = append(p.byRoute[ref], g)
		return nil
	}
	return fmt.Errorf("its target is of kind %q of group %q", t.GetKind(), t.GetGroup())
}

// allow gives a grant to the Servers that it is meant for.
func (p *Policies) allow(g grant, meant func(*busv1.Server) bool) {
	for _, s := range p.servers {
		if meant(s.row) {
			s.grants = append(s.grants, g)
		}
	}
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
	return grant{kind: "authorizationpolicy", name: row.GetName(), authz: authz}, nil
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
		nets, err := networks(row.GetNetworks())
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
