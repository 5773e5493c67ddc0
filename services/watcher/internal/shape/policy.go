package shape

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/weftmesh/weft/bus"
	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
)

var (
	proxyProtocols = []string{"unknown", "HTTP/1", "HTTP/2", "gRPC", "opaque", "TLS"}
	// The six default policies are also what a Server may say of everybody.
	accessPolicies = []string{
		"all-unauthenticated", "all-authenticated", "cluster-unauthenticated",
		"cluster-authenticated", "audit", "deny",
	}
)

// serverRows makes a Server's row, with the defaults of its newest version. A value
// of the future, or a typing mistake, in what it says of its clients does not undo
// the Server: without it the port would be as open as the cluster's default policy.
func serverRows(s *Server) (rows []Row, partly, wrong *Problem) {
	row := &busv1.Server{
		Namespace:     s.Namespace,
		Name:          s.Name,
		Uid:           string(s.UID),
		ProxyProtocol: s.Spec.ProxyProtocol,
		AccessPolicy:  s.Spec.AccessPolicy,
		CreatedAt:     created(s),
		Labels:        clone(s.Labels),
	}
	if (s.Spec.PodSelector == nil) == (s.Spec.ExternalWorkloadSelector == nil) {
		return nil, nil, problem(Servers, s, "spec.podSelector", "exactly one of podSelector and externalWorkloadSelector must be set")
	}
	if row.Pods, wrong = selector(Servers, s, "spec.podSelector", s.Spec.PodSelector); wrong != nil {
		return nil, nil, wrong
	}
	if row.ExternalWorkloads, wrong = selector(Servers, s, "spec.externalWorkloadSelector", s.Spec.ExternalWorkloadSelector); wrong != nil {
		return nil, nil, wrong
	}
	switch port := s.Spec.Port; {
	case port.Type == intstr.Int && validPort(int64(port.IntVal)):
		row.Port = uint32(port.IntVal)
	case port.Type == intstr.Int:
		return nil, nil, problem(Servers, s, "spec.port", "%d is not between 1 and 65535", port.IntVal)
	case port.StrVal == "":
		return nil, nil, problem(Servers, s, "spec.port", "is empty; write a number or the name of a container port")
	default:
		row.PortName = port.StrVal
	}
	if row.ProxyProtocol == "" {
		row.ProxyProtocol = "unknown"
	}
	if !slices.Contains(proxyProtocols, row.ProxyProtocol) {
		partly = problem(Servers, s, "spec.proxyProtocol", "%s is none of %s; it counts as unknown", quote(row.ProxyProtocol), strings.Join(proxyProtocols, ", "))
		row.ProxyProtocol = "unknown"
	}
	if row.AccessPolicy == "" {
		row.AccessPolicy = "deny"
	}
	if !slices.Contains(accessPolicies, row.AccessPolicy) {
		partly = problem(Servers, s, "spec.accessPolicy", "%s is none of %s; it counts as deny", quote(row.AccessPolicy), strings.Join(accessPolicies, ", "))
		row.AccessPolicy = "deny"
	}
	return []Row{{busv1.Table_TABLE_SERVERS, bus.Key(s.Namespace, s.Name), row}}, partly, nil
}

// selector converts a label selector; nil selects nothing and stays nil. Order
// means nothing in a selector, so it is sorted.
func selector(kind Kind, obj metav1.Object, field string, s *metav1.LabelSelector) (*busv1.Selector, *Problem) {
	if s == nil {
		return nil, nil
	}
	if _, err := metav1.LabelSelectorAsSelector(s); err != nil {
		return nil, problem(kind, obj, field, "%s", short(err.Error()))
	}
	out := &busv1.Selector{MatchLabels: clone(s.MatchLabels)}
	for _, e := range s.MatchExpressions {
		values := slices.Clone(e.Values)
		slices.Sort(values)
		out.Requirements = append(out.Requirements, &busv1.Requirement{
			Key:      e.Key,
			Operator: string(e.Operator),
			Values:   slices.Compact(values),
		})
	}
	slices.SortStableFunc(out.Requirements, func(a, b *busv1.Requirement) int {
		if c := strings.Compare(a.Key, b.Key); c != 0 {
			return c
		}
		return strings.Compare(a.Operator, b.Operator)
	})
	return out, nil
}

// authorizationRows makes an AuthorizationPolicy's row. Which targets and
// authentications make sense together is the policy service's to judge.
func authorizationRows(a *AuthorizationPolicy) ([]Row, *Problem) {
	if wrong := checkRef(AuthorizationPolicies, a, "spec.targetRef", a.Spec.TargetRef); wrong != nil {
		return nil, wrong
	}
	if a.Spec.RequiredAuthenticationRefs == nil {
		return nil, problem(AuthorizationPolicies, a, "spec.requiredAuthenticationRefs", "is missing; write [] to allow everyone")
	}
	row := &busv1.AuthorizationPolicy{
		Namespace: a.Namespace,
		Name:      a.Name,
		Uid:       string(a.UID),
		Target:    refRow(a.Spec.TargetRef),
		CreatedAt: created(a),
	}
	for i, r := range a.Spec.RequiredAuthenticationRefs {
		if wrong := checkRef(AuthorizationPolicies, a, "spec.requiredAuthenticationRefs["+strconv.Itoa(i)+"]", r); wrong != nil {
			return nil, wrong
		}
		row.Authentications = append(row.Authentications, refRow(r))
	}
	return []Row{{busv1.Table_TABLE_AUTHORIZATION_POLICIES, bus.Key(a.Namespace, a.Name), row}}, nil
}

func checkRef(kind Kind, obj metav1.Object, field string, r Ref) *Problem {
	if r.Kind == "" {
		return problem(kind, obj, field+".kind", "is missing")
	}
	if r.Name == "" {
		return problem(kind, obj, field+".name", "is missing")
	}
	return nil
}

func refRow(r Ref) *busv1.Ref {
	return &busv1.Ref{Group: r.Group, Kind: r.Kind, Name: r.Name, Namespace: r.Namespace}
}

// meshTLSRows makes a MeshTLSAuthentication's row.
func meshTLSRows(m *MeshTLSAuthentication) ([]Row, *Problem) {
	if (len(m.Spec.Identities) == 0) == (len(m.Spec.IdentityRefs) == 0) {
		return nil, problem(MeshTLSAuthentications, m, "spec.identities", "exactly one of identities and identityRefs must have entries")
	}
	row := &busv1.MeshTLSAuthentication{Namespace: m.Namespace, Name: m.Name}
	for i, id := range m.Spec.Identities {
		if id == "" {
			return nil, problem(MeshTLSAuthentications, m, "spec.identities["+strconv.Itoa(i)+"]", "is empty")
		}
		row.Identities = append(row.Identities, id)
	}
	for i, r := range m.Spec.IdentityRefs {
		if wrong := checkRef(MeshTLSAuthentications, m, "spec.identityRefs["+strconv.Itoa(i)+"]", r); wrong != nil {
			return nil, wrong
		}
		row.IdentityRefs = append(row.IdentityRefs, refRow(r))
	}
	return []Row{{busv1.Table_TABLE_MESH_TLS_AUTHENTICATIONS, bus.Key(m.Namespace, m.Name), row}}, nil
}

// networkRows makes a NetworkAuthentication's row. No network at all is an
// error and never "every network".
func networkRows(n *NetworkAuthentication) ([]Row, *Problem) {
	if len(n.Spec.Networks) == 0 {
		return nil, problem(NetworkAuthentications, n, "spec.networks", "names no network")
	}
	row := &busv1.NetworkAuthentication{Namespace: n.Namespace, Name: n.Name}
	for i, net := range n.Spec.Networks {
		at := "spec.networks[" + strconv.Itoa(i) + "]"
		cidr, ok := network(net.CIDR)
		if !ok {
			return nil, problem(NetworkAuthentications, n, at+".cidr", "%s is not a network such as 10.0.0.0/8", quote(net.CIDR))
		}
		out := &busv1.Network{Cidr: cidr}
		for j, e := range net.Except {
			except, ok := network(e)
			if !ok {
				return nil, problem(NetworkAuthentications, n, at+".except["+strconv.Itoa(j)+"]", "%s is not a network such as 10.1.0.0/16", quote(e))
			}
			out.Except = append(out.Except, except)
		}
		row.Networks = append(row.Networks, out)
	}
	return []Row{{busv1.Table_TABLE_NETWORK_AUTHENTICATIONS, bus.Key(n.Namespace, n.Name), row}}, nil
}

// network reads a CIDR, or a single address as the network that holds only it.
func network(s string) (string, bool) {
	if p, err := netip.ParsePrefix(s); err == nil {
		return p.String(), true
	}
	if a, err := netip.ParseAddr(s); err == nil && a.Zone() == "" {
		return netip.PrefixFrom(a, a.BitLen()).String(), true
	}
	return "", false
}
