// Package address translates addresses between Linkerd's messages and net/netip.
// It is pure.
package address

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	netpb "github.com/linkerd/linkerd2-proxy-api/go/net"
)

// IP reads an address; false if the message has none. An IPv4 address that is
// mapped into IPv6 stays so.
func IP(ip *netpb.IPAddress) (netip.Addr, bool) {
	switch v := ip.GetIp().(type) {
	case *netpb.IPAddress_Ipv4:
		return netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, v.Ipv4))), true
	case *netpb.IPAddress_Ipv6:
		b := binary.BigEndian.AppendUint64(nil, v.Ipv6.GetFirst())
		return netip.AddrFrom16([16]byte(binary.BigEndian.AppendUint64(b, v.Ipv6.GetLast()))), true
	}
	return netip.Addr{}, false
}

// TCP writes an address, IPv4 wherever it is one. Without an IP the message has
// none either.
func TCP(a netip.AddrPort) *netpb.TcpAddress {
	out := &netpb.TcpAddress{Port: uint32(a.Port())}
	switch ip := a.Addr().Unmap(); {
	case ip.Is4():
		b := ip.As4()
		out.Ip = &netpb.IPAddress{Ip: &netpb.IPAddress_Ipv4{Ipv4: binary.BigEndian.Uint32(b[:])}}
	case ip.Is6():
		b := ip.As16()
		out.Ip = &netpb.IPAddress{Ip: &netpb.IPAddress_Ipv6{Ipv6: &netpb.IPv6{
			First: binary.BigEndian.Uint64(b[:8]), Last: binary.BigEndian.Uint64(b[8:]),
		}}}
	}
	return out
}

// Network makes a network of an address in it and the length of its prefix. The
// error says what it lacks.
func Network(ip *netpb.IPAddress, bits uint32) (netip.Prefix, error) {
	addr, ok := IP(ip)
	if !ok {
		return netip.Prefix{}, errors.New("a network without an address")
	}
	if bits > uint32(addr.BitLen()) {
		return netip.Prefix{}, fmt.Errorf("a network of %d bits", bits)
	}
	return netip.PrefixFrom(addr, int(bits)).Masked(), nil
}
