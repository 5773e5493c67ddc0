package resolve

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	destpb "github.com/linkerd/linkerd2-proxy-api/go/destination"
	netpb "github.com/linkerd/linkerd2-proxy-api/go/net"

	"github.com/weftmesh/weft/proxy/internal/address"
)

// Hint says what the proxy in front of an endpoint prefers to be spoken to in.
type Hint uint8

// The hints. HintH2 lets HTTP/1 be carried over HTTP/2 (package origproto).
const (
	HintNone Hint = iota
	HintH2
	HintOpaque
)

// An Endpoint is one address of a backend and how to speak to it. It is a value:
// nothing changes it, its labels included.
type Endpoint struct {
	Addr       netip.AddrPort
	Identity   string // the peer must prove to be this, over TLS; "" is plaintext
	ServerName string // SNI
	Hint       Hint
	// InboundPort is the port of the peer's proxy that takes a transport header;
	// 0 if the endpoint is dialled on its own port.
	InboundPort uint16
	Override    string // authority to put in place of the request's; "" mostly
	HTTP2       Settings
	Labels      map[string]string // metric labels, without the dst_ prefix
}

// Settings are the endpoint's settings of a client connection. Zero means default.
type Settings struct {
	KeepaliveInterval time.Duration
	KeepaliveTimeout  time.Duration
	StreamWindow      uint32
	ConnWindow        uint32
}

// Equal reports whether a client of one endpoint can stay for the other.
func (e Endpoint) Equal(o Endpoint) bool {
	return e.Addr == o.Addr && e.Identity == o.Identity && e.ServerName == o.ServerName && e.Hint == o.Hint &&
		e.InboundPort == o.InboundPort && e.Override == o.Override && e.HTTP2 == o.HTTP2 && maps.Equal(e.Labels, o.Labels)
}

// key tells endpoints apart in a cache; it agrees with Equal.
func (e Endpoint) key() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %q %q %d %d %q %v", e.Addr, e.Identity, e.ServerName, e.Hint, e.InboundPort, e.Override, e.HTTP2)
	for _, name := range slices.Sorted(maps.Keys(e.Labels)) {
		fmt.Fprintf(&b, " %q=%q", name, e.Labels[name])
	}
	return b.String()
}

// endpointOf reads an address of discovery. Labels of the address win over those
// of its set. An address that cannot be read is skipped, never guessed.
func endpointOf(w *destpb.WeightedAddr, set map[string]string) (Endpoint, bool) {
	addr, ok := addrOf(w.GetAddr())
	if !ok {
		return Endpoint{}, false
	}
	e := Endpoint{Addr: addr, Override: w.GetAuthorityOverride().GetAuthorityOverride()}
	if len(set)+len(w.GetMetricLabels()) > 0 {
		e.Labels = make(map[string]string, len(set)+len(w.GetMetricLabels()))
		maps.Copy(e.Labels, set)
		maps.Copy(e.Labels, w.GetMetricLabels())
	}
	e.Identity, e.ServerName = identityOf(w.GetTlsIdentity())
	switch hint := w.GetProtocolHint(); hint.GetProtocol().(type) {
	case *destpb.ProtocolHint_H2_:
		e.Hint = HintH2
	case *destpb.ProtocolHint_Opaque_:
		e.Hint = HintOpaque
	}
	if port := w.GetProtocolHint().GetOpaqueTransport().GetInboundPort(); port > 0 && port < 65535 {
		e.InboundPort = uint16(port)
	}
	if p := w.GetHttp2(); p != nil {
		if ka := p.GetKeepAlive(); ka.GetInterval().AsDuration() > 0 && ka.GetTimeout().AsDuration() > 0 {
			e.HTTP2.KeepaliveInterval, e.HTTP2.KeepaliveTimeout = ka.GetInterval().AsDuration(), ka.GetTimeout().AsDuration()
		}
		fc := p.GetFlowControl()
		if s, c := fc.GetInitialStreamWindowSize(), fc.GetInitialConnectionWindowSize(); s > 0 && c > 0 {
			e.HTTP2.StreamWindow, e.HTTP2.ConnWindow = s, c
		}
	}
	return e, true
}

// identityOf returns the id to ask for and the SNI. A URI id without a server
// name is ignored, as are ids that are no names (spec/proxy.md §8.3).
func identityOf(t *destpb.TlsIdentity) (id, sni string) {
	sni = strings.ToLower(t.GetServerName().GetName())
	switch s := t.GetStrategy().(type) {
	case *destpb.TlsIdentity_DnsLikeIdentity_:
		id = strings.ToLower(s.DnsLikeIdentity.GetName())
		if id == "" || strings.HasSuffix(id, ".") {
			return "", ""
		}
		return id, cmp.Or(sni, id)
	case *destpb.TlsIdentity_UriLikeIdentity_:
		id = s.UriLikeIdentity.GetUri()
		if id == "" || sni == "" {
			return "", ""
		}
		return id, sni
	}
	return "", ""
}

func addrOf(a *netpb.TcpAddress) (netip.AddrPort, bool) {
	if a.GetPort() == 0 || a.GetPort() > 65535 {
		return netip.AddrPort{}, false
	}
	ip, ok := address.IP(a.GetIp())
	return netip.AddrPortFrom(ip.Unmap(), uint16(a.GetPort())), ok
}
