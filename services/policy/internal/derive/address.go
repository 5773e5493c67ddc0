package derive

import (
	"encoding/binary"
	"net/netip"

	"github.com/linkerd/linkerd2-proxy-api/go/net"
)

// IPAddress writes an address. One of IPv4 that is mapped into IPv6 stays so.
func IPAddress(a netip.Addr) *net.IPAddress {
	if a.Is4() {
		b := a.As4()
		return &net.IPAddress{Ip: &net.IPAddress_Ipv4{Ipv4: binary.BigEndian.Uint32(b[:])}}
	}
	b := a.As16()
	return &net.IPAddress{Ip: &net.IPAddress_Ipv6{Ipv6: &net.IPv6{
		First: binary.BigEndian.Uint64(b[:8]),
		Last:  binary.BigEndian.Uint64(b[8:]),
	}}}
}
