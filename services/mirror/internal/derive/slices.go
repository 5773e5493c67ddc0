package derive

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
)

// maxEndpoints of one slice; Kubernetes allows 1000.
const maxEndpoints = 500

// group is what the endpoints of one slice share.
type group struct {
	identity string // whom their proxies are; empty for one without a proxy
	inbound  uint32 // their proxies' inbound port; 0 where no pod with a proxy is known
	remote   string // the name a gateway is asked for; empty without a gateway
	family   discoveryv1.AddressType
	ports    []discoveryv1.EndpointPort
}

// key tells groups apart, and is what a slice's name is made from: a slice
// keeps its name for as long as its group exists.
func (g group) key() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s|%s|%s", g.identity, g.remote, g.family)
	if g.inbound != 0 {
		fmt.Fprintf(&b, "|%d", g.inbound)
	}
	for _, p := range g.ports {
		fmt.Fprintf(&b, "|%s/%d/%s", *p.Name, *p.Port, *p.Protocol)
	}
	return b.String()
}

// throughGateway has the gateway's addresses as the endpoints of the copy, and
// its port behind every port of the service. A client's proxy names the service
// it wants to the gateway. With no ready endpoint there the copy has none, too.
func throughGateway(svc *corev1.Service, there []*busv1.Endpoint, link Link) []*discoveryv1.EndpointSlice {
	var ports []discoveryv1.EndpointPort
	for _, p := range svc.Spec.Ports {
		ports = append(ports, port(p.Name, int32(link.Gateway.Port), p.Protocol))
	}
	ready := slices.ContainsFunc(there, func(e *busv1.Endpoint) bool { return e.GetReady() })
	groups := map[string]*members{}
	for _, addr := range link.Gateway.Addresses {
		g := group{
			identity: link.Gateway.Identity, remote: svc.Annotations[AnnotationRemote],
			family: family(addr), ports: ports,
		}
		m := at(groups, g)
		if ready {
			m.add(discoveryv1.Endpoint{
				Addresses: []string{addr.String()}, Conditions: discoveryv1.EndpointConditions{Ready: new(!link.Gateway.Dead)},
			})
		}
	}
	return build(svc, groups, link)
}

// direct has the other cluster's endpoints themselves, for clusters whose pods
// reach each other. All endpoints of a slice have one identity, which a client's
// proxy checks as it checks a gateway's: their proxies are the gateways to
// themselves. No name is given, so none is sent: the address is the target.
//
// Endpoints that a client could reach only without mTLS although they have a
// proxy are left out.
//
// A targetRef to an ExternalWorkload would say the same with a transport header,
// but its identity is a URI, and a certificate of the mesh carries a DNS name.
func direct(svc *corev1.Service, t Tables, there []*busv1.Endpoint, link Link) []*discoveryv1.EndpointSlice {
	groups := map[string]*members{}
	for _, e := range there {
		addr, err := netip.ParseAddr(e.GetAddress())
		// An address that needs a name to be reached belongs to a third cluster.
		if err != nil || !e.GetReady() || e.GetAuthority() != "" {
			continue
		}
		who, ok := peerOf(e, t, link)
		if !ok {
			continue
		}
		ep := discoveryv1.Endpoint{
			Addresses: []string{addr.String()}, Conditions: discoveryv1.EndpointConditions{Ready: new(true)},
		}
		if h := e.GetHostname(); h != "" {
			ep.Hostname = &h
		}
		meshed, plain := group{identity: who.identity, inbound: who.inbound, family: family(addr)}, group{family: family(addr)}
		for _, p := range e.GetPorts() {
			g := &meshed
			if who.identity == "" || who.skips(p.GetPort()) {
				g = &plain
			}
			g.ports = append(g.ports, port(p.GetName(), int32(p.GetPort()), protocolOf(svc, p.GetName())))
		}
		for _, g := range []group{meshed, plain} {
			if len(g.ports) > 0 {
				slices.SortFunc(g.ports, func(a, b discoveryv1.EndpointPort) int {
					return cmp.Or(cmp.Compare(*a.Name, *b.Name), cmp.Compare(*a.Port, *b.Port))
				})
				at(groups, g).add(ep)
			}
		}
	}
	return build(svc, groups, link)
}

func family(addr netip.Addr) discoveryv1.AddressType {
	if addr.Unmap().Is4() {
		return discoveryv1.AddressTypeIPv4
	}
	return discoveryv1.AddressTypeIPv6
}

func port(name string, number int32, p corev1.Protocol) discoveryv1.EndpointPort {
	return discoveryv1.EndpointPort{Name: &name, Port: &number, Protocol: &p}
}

// protocolOf is that of the service's port of this name: rows of endpoints have
// none.
func protocolOf(svc *corev1.Service, name string) corev1.Protocol {
	for _, p := range svc.Spec.Ports {
		if p.Name == name {
			return p.Protocol
		}
	}
	return corev1.ProtocolTCP
}

// members are the endpoints of one group, each address once.
type members struct {
	group
	endpoints []discoveryv1.Endpoint
}

func at(groups map[string]*members, g group) *members {
	key := g.key()
	if groups[key] == nil {
		groups[key] = &members{group: g}
	}
	return groups[key]
}

func (m *members) add(e discoveryv1.Endpoint) { m.endpoints = append(m.endpoints, e) }

// build makes slices of groups, in the order of their names.
func build(svc *corev1.Service, groups map[string]*members, link Link) []*discoveryv1.EndpointSlice {
	var out []*discoveryv1.EndpointSlice
	for key, m := range groups {
		slices.SortFunc(m.endpoints, func(a, b discoveryv1.Endpoint) int {
			return strings.Compare(a.Addresses[0], b.Addresses[0])
		})
		m.endpoints = slices.CompactFunc(m.endpoints, func(a, b discoveryv1.Endpoint) bool {
			return a.Addresses[0] == b.Addresses[0]
		})
		sum := sha256.Sum256([]byte(key))
		name := svc.Name + "-" + hex.EncodeToString(sum[:5])
		if len(m.endpoints) == 0 {
			out = append(out, m.slice(svc, name, nil, link))
		}
		n := 0
		for part := range slices.Chunk(m.endpoints, maxEndpoints) {
			suffix := ""
			if n > 0 {
				suffix = fmt.Sprintf("-%d", n)
			}
			out = append(out, m.slice(svc, name+suffix, part, link))
			n++
		}
	}
	slices.SortFunc(out, func(a, b *discoveryv1.EndpointSlice) int { return strings.Compare(a.Name, b.Name) })
	return out
}

func (m *members) slice(svc *corev1.Service, name string, endpoints []discoveryv1.Endpoint, link Link) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{
		TypeMeta: metav1.TypeMeta{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSlice"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: svc.Namespace, Name: name, Labels: marks(link), Annotations: map[string]string{},
		},
		AddressType: m.family,
		Endpoints:   endpoints,
		Ports:       m.ports,
	}
	if s.Endpoints == nil {
		s.Endpoints = []discoveryv1.Endpoint{} // the field is required
	}
	s.Labels[discoveryv1.LabelServiceName] = svc.Name
	s.Labels[discoveryv1.LabelManagedBy] = ManagedBy
	if m.identity != "" {
		s.Annotations[AnnotationIdentity] = m.identity
	}
	if m.inbound != 0 {
		s.Annotations[AnnotationInbound] = strconv.Itoa(int(m.inbound))
	}
	if m.remote != "" {
		s.Annotations[AnnotationRemote] = m.remote
	}
	return s
}
