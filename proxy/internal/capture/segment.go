// Package capture reads what passes a pod's network devices: the debug
// container's tool. Parsing and writing are pure; Open alone needs Linux and
// CAP_NET_RAW. What meshed pods say to each other is encrypted here, what they
// say to their own proxy is not.
package capture

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"strings"
)

// TCP's flags, as they are in the header.
const (
	fin = 1 << iota
	syn
	rst
	psh
	ack
)

// Segment is what a line says of one packet of TCP.
type Segment struct {
	From, To netip.AddrPort
	Flags    byte
	Length   int // of the payload, in bytes
}

// Parse reads a packet that begins with its IP header. It is not ok for what is
// no TCP, for fragments after the first, and for what is cut or malformed.
func Parse(packet []byte) (Segment, bool) {
	if len(packet) < 1 {
		return Segment{}, false
	}
	switch packet[0] >> 4 {
	case 4:
		return parse4(packet)
	case 6:
		return parse6(packet)
	}
	return Segment{}, false
}

const tcp = 6

func parse4(p []byte) (Segment, bool) {
	if len(p) < 20 {
		return Segment{}, false
	}
	head, total := int(p[0]&15)*4, int(binary.BigEndian.Uint16(p[2:]))
	if head < 20 || len(p) < head || total < head || p[9] != tcp || binary.BigEndian.Uint16(p[6:])&0x1fff != 0 {
		return Segment{}, false
	}
	return parseTCP(netip.AddrFrom4([4]byte(p[12:16])), netip.AddrFrom4([4]byte(p[16:20])), p[head:], total-head)
}

// parse6 knows no extension headers: hosts send TCP without any.
func parse6(p []byte) (Segment, bool) {
	if len(p) < 40 || p[6] != tcp {
		return Segment{}, false
	}
	return parseTCP(netip.AddrFrom16([16]byte(p[8:24])), netip.AddrFrom16([16]byte(p[24:40])), p[40:], int(binary.BigEndian.Uint16(p[4:])))
}

// parseTCP reads the header; size is that of header and payload as IP has it,
// which may be more than was caught.
func parseTCP(from, to netip.Addr, p []byte, size int) (Segment, bool) {
	if len(p) < 20 {
		return Segment{}, false
	}
	head := int(p[12]>>4) * 4
	if head < 20 || size < head {
		return Segment{}, false
	}
	return Segment{
		From:  netip.AddrPortFrom(from, binary.BigEndian.Uint16(p)),
		To:    netip.AddrPortFrom(to, binary.BigEndian.Uint16(p[2:])),
		Flags: p[13], Length: size - head,
	}, true
}

// Turns says whether a connection begins or ends with the segment.
func (s Segment) Turns() bool { return s.Flags&(syn|fin|rst) != 0 }

// Of says whether the segment is from or to a port; 0 is any.
func (s Segment) Of(port uint16) bool {
	return port == 0 || s.From.Port() == port || s.To.Port() == port
}

// String is the segment in a line, with tcpdump's letters.
func (s Segment) String() string {
	var flags strings.Builder
	for _, f := range []struct {
		bit    byte
		letter string
	}{{syn, "S"}, {fin, "F"}, {rst, "R"}, {psh, "P"}, {ack, "."}} {
		if s.Flags&f.bit != 0 {
			flags.WriteString(f.letter)
		}
	}
	return fmt.Sprintf("%s > %s [%s] %d", s.From, s.To, flags.String(), s.Length)
}
