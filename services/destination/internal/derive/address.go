package derive

import (
	"encoding/binary"
	"net/netip"

	pb "github.com/linkerd/linkerd2-proxy-api/go/destination"
	"github.com/linkerd/linkerd2-proxy-api/go/net"

	"github.com/weftmesh/weft/services/destination/internal/row"
)

// place is where a workload is reached and which of its ports that is. They
// differ for a host port: the connection goes to the node's port, while policy
// speaks of the container's.
type place struct {
	at   netip.AddrPort
	port uint16
	zone string
}

// TCPAddress writes an address as the API has it: IPv4 as one number, IPv6 as two.
func TCPAddress(at netip.AddrPort) *net.TcpAddress {
	ip := &net.IPAddress{}
	if at.Addr().Is4() {
		b := at.Addr().As4()
		ip.Ip = &net.IPAddress_Ipv4{Ipv4: binary.BigEndian.Uint32(b[:])}
	} else {
		b := at.Addr().As16()
		ip.Ip = &net.IPAddress_Ipv6{Ipv6: &net.IPv6{
			First: binary.BigEndian.Uint64(b[:8]),
			Last:  binary.BigEndian.Uint64(b[8:]),
		}}
	}
	return &net.TcpAddress{Ip: ip, Port: uint32(at.Port())}
}

// bare is an address of which nothing more is known.
func bare(at netip.AddrPort) *pb.WeightedAddr {
	return &pb.WeightedAddr{Addr: TCPAddress(at), Weight: defaultWeight, MetricLabels: map[string]string{}}
}

// workloadAddr answers for a pod or an ExternalWorkload (spec §2.7).
func (c Config) workloadAddr(p row.Peer, to place, servers []*row.Server) (*pb.WeightedAddr, error) {
	if p.Workload.External != nil {
		return c.externalAddr(p, to, servers), nil
	}
	return c.podAddr(p, to, servers)
}

func (c Config) podAddr(p row.Peer, to place, servers []*row.Server) (*pb.WeightedAddr, error) {
	wa := bare(to.at)
	podLabels(wa.MetricLabels, p)
	wa.MetricLabels["zone"] = to.zone
	if err := c.podRest(wa, p, to.port, c.opaque(p, to.port, servers)); err != nil {
		return nil, err
	}
	return wa, nil
}

// podRest fills in what pods of one template have alike.
func (c Config) podRest(wa *pb.WeightedAddr, p row.Peer, port uint16, opaque bool) error {
	t := p.Template
	if t.ControlPlane == "" || t.SkipInbound.Has(port) {
		return nil
	}
	// Any Linkerd control plane's proxy takes these hints; an identity can only
	// be checked if it is our own that issued it.
	wa.Http2 = c.HTTP2
	hint, err := c.podHint(t, port, opaque)
	if err != nil {
		return err
	}
	wa.ProtocolHint = hint
	if t.ControlPlane == c.ControlPlane && c.TrustDomain != "" {
		wa.TlsIdentity = c.podIdentity(p)
	}
	return nil
}

func (c Config) podHint(t *row.Template, port uint16, opaque bool) (*pb.ProtocolHint, error) {
	if t.Proxy == nil || t.Proxy.Admin == 0 || t.Proxy.Control == 0 {
		return nil, errProxyPorts
	}
	hint := &pb.ProtocolHint{}
	// The proxy's own servers speak no transport header.
	own := port == t.Proxy.Admin || port == t.Proxy.Control
	if !own && (opaque || c.ForceOpaqueTransport) {
		if t.Proxy.Inbound == 0 {
			return nil, errProxyPorts
		}
		hint.OpaqueTransport = &pb.ProtocolHint_OpaqueTransport{InboundPort: uint32(t.Proxy.Inbound)}
	}
	switch {
	case opaque:
		hint.Protocol = &pb.ProtocolHint_Opaque_{Opaque: &pb.ProtocolHint_Opaque{}}
	case c.UpgradeHTTP2:
		hint.Protocol = &pb.ProtocolHint_H2_{H2: &pb.ProtocolHint_H2{}}
	}
	return hint, nil
}

func (c Config) podIdentity(p row.Peer) *pb.TlsIdentity {
	name := serviceAccount(p) + "." + p.Workload.Namespace + ".serviceaccount.identity." + c.ControlPlane + "." + c.TrustDomain
	id := &pb.TlsIdentity_DnsLikeIdentity{Name: name}
	return &pb.TlsIdentity{
		Strategy:   &pb.TlsIdentity_DnsLikeIdentity_{DnsLikeIdentity: id},
		ServerName: id,
	}
}

// externalAddr answers for a machine outside: it always has a proxy and always
// a SPIFFE identity.
func (c Config) externalAddr(p row.Peer, to place, servers []*row.Server) *pb.WeightedAddr {
	wa := bare(to.at)
	wa.MetricLabels["external_workload"] = p.Workload.Name
	if p.Template.OwnerKind != "" && p.Template.OwnerName != "" {
		wa.MetricLabels[ownerLabel(p.Template.OwnerKind)] = p.Template.OwnerName
	}
	wa.MetricLabels["zone"] = to.zone
	wa.Http2 = c.HTTP2
	opaque := c.opaque(p, to.port, servers)
	wa.ProtocolHint = &pb.ProtocolHint{Protocol: &pb.ProtocolHint_H2_{H2: &pb.ProtocolHint_H2{}}}
	if opaque {
		wa.ProtocolHint.Protocol = &pb.ProtocolHint_Opaque_{Opaque: &pb.ProtocolHint_Opaque{}}
	}
	if opaque || c.ForceOpaqueTransport {
		wa.ProtocolHint.OpaqueTransport = &pb.ProtocolHint_OpaqueTransport{InboundPort: externalInbound(p.Template)}
	}
	wa.TlsIdentity = &pb.TlsIdentity{
		Strategy:   &pb.TlsIdentity_UriLikeIdentity_{UriLikeIdentity: &pb.TlsIdentity_UriLikeIdentity{Uri: p.Workload.External.Identity}},
		ServerName: &pb.TlsIdentity_DnsLikeIdentity{Name: p.Workload.External.ServerName},
	}
	return wa
}

func externalInbound(t *row.Template) uint32 {
	for _, p := range t.Ports {
		if p.Name == proxyPortName {
			return uint32(p.Port)
		}
	}
	return defaultInbound
}

// gatewayAddr answers for an address that no workload stands behind: another
// cluster's gateway, or something that somebody listed by hand.
func (c Config) gatewayAddr(g *row.Gateway, at netip.AddrPort, asked uint16) *pb.WeightedAddr {
	wa := bare(at)
	if g == nil {
		return wa
	}
	if g.Authority != "" {
		// The gateway routes by this name, with the port the client asked for.
		wa.AuthorityOverride = &pb.AuthorityOverride{AuthorityOverride: hostPort(g.Authority, asked)}
	}
	if g.Identity != "" {
		wa.TlsIdentity = &pb.TlsIdentity{Strategy: &pb.TlsIdentity_DnsLikeIdentity_{
			DnsLikeIdentity: &pb.TlsIdentity_DnsLikeIdentity{Name: g.Identity},
		}}
		if c.UpgradeHTTP2 {
			wa.ProtocolHint = &pb.ProtocolHint{Protocol: &pb.ProtocolHint_H2_{H2: &pb.ProtocolHint_H2{}}}
		}
		if g.InboundPort != 0 && c.ForceOpaqueTransport {
			if wa.ProtocolHint == nil {
				wa.ProtocolHint = &pb.ProtocolHint{}
			}
			wa.ProtocolHint.OpaqueTransport = &pb.ProtocolHint_OpaqueTransport{InboundPort: uint32(g.InboundPort)}
		}
		wa.Http2 = c.HTTP2
	}
	return wa
}
