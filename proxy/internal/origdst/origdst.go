// Package origdst asks the kernel where a redirected connection was going before
// the packet filter sent it to the proxy.
package origdst

import (
	"encoding/binary"
	"net"
	"net/netip"

	"golang.org/x/sys/unix"
)

// Of returns the original destination, IPv4-mapped addresses as IPv4. It is
// false when nothing was redirected: the kernel knows no entry, or the entry is
// the address that accepted the connection.
func Of(c *net.TCPConn) (netip.AddrPort, bool) {
	local, remote := AddrPort(c.LocalAddr()), AddrPort(c.RemoteAddr())
	raw, err := c.SyscallConn()
	if err != nil {
		return netip.AddrPort{}, false
	}
	var dst netip.AddrPort
	// The family is the client's, not the socket's: a dual-stack listener accepts
	// IPv4 clients on an IPv6 socket.
	err = raw.Control(func(fd uintptr) { dst, _ = ask(int(fd), remote.Addr().Is4()) })
	if err != nil || !dst.IsValid() || dst == local {
		return netip.AddrPort{}, false
	}
	return dst, true
}

func ask(fd int, v4 bool) (netip.AddrPort, error) {
	if v4 {
		// The answer is a sockaddr_in in the room of an ip_mreqn-sized struct: the
		// usual trick, since x/sys has no getsockopt for raw sockaddrs.
		mreq, err := unix.GetsockoptIPv6Mreq(fd, unix.SOL_IP, unix.SO_ORIGINAL_DST)
		if err != nil {
			return netip.AddrPort{}, err
		}
		b := mreq.Multiaddr // family (2), port (2), address (4)
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte(b[4:8])), binary.BigEndian.Uint16(b[2:4])), nil
	}
	// IP6T_SO_ORIGINAL_DST has the same number. IPv6MTUInfo begins with a
	// sockaddr_in6, which is what the kernel writes.
	info, err := unix.GetsockoptIPv6MTUInfo(fd, unix.SOL_IPV6, unix.SO_ORIGINAL_DST)
	if err != nil {
		return netip.AddrPort{}, err
	}
	var port [2]byte
	binary.NativeEndian.PutUint16(port[:], info.Addr.Port)
	return netip.AddrPortFrom(netip.AddrFrom16(info.Addr.Addr).Unmap(), binary.BigEndian.Uint16(port[:])), nil
}

// AddrPort is a TCP address as it is compared: IPv4 wherever it is one, without a zone.
func AddrPort(a net.Addr) netip.AddrPort {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.AddrPort{}
	}
	ap := tcp.AddrPort()
	return netip.AddrPortFrom(ap.Addr().Unmap().WithZone(""), ap.Port())
}
