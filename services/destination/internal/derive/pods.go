package derive

import (
	"encoding/binary"
	"net/netip"

	pb "github.com/linkerd/linkerd2-proxy-api/go/destination"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/weftmesh/weft/services/destination/internal/row"
)

// pods encodes the addresses of pods of one Service. Those of one template differ
// in little more than their address and name, and a first answer is mostly that:
// so what they have alike is worked out once, and labels are collected in one map.
type pods struct {
	config Config
	labels map[string]string

	// What rest was made of. It has all but the address and the labels.
	template  *row.Template
	namespace string
	port      uint16
	opaque    bool
	rest      []byte
	err       error
}

// encode is the same address as podAddr's.
func (m *pods) encode(p row.Peer, to place, servers []*row.Server) ([]byte, error) {
	opaque := m.config.opaque(p, to.port, servers)
	if m.template != p.Template || m.namespace != p.Workload.Namespace || m.port != to.port || m.opaque != opaque || m.labels == nil {
		m.template, m.namespace, m.port, m.opaque = p.Template, p.Workload.Namespace, to.port, opaque
		wa := &pb.WeightedAddr{}
		if m.err = m.config.podRest(wa, p, to.port, opaque); m.err == nil {
			m.rest, m.err = encode(wa)
		}
		m.labels = make(map[string]string, 8)
	}
	if m.err != nil {
		return nil, m.err
	}
	clear(m.labels)
	podLabels(m.labels, p)
	m.labels["zone"] = to.zone
	n, err := labelsSize(m.labels)
	if err != nil {
		return nil, err
	}
	b := appendAddr(make([]byte, 0, maxAddr+len(m.rest)+n), to.at)
	return appendLabels(append(b, m.rest...), labelsField, m.labels), nil
}

// maxAddr is the most that appendAddr writes, for IPv6 and a port of 3 bytes.
const maxAddr = 2 + 2 + 2 + 18 + 4

// appendAddr writes the field addr of a WeightedAddr, as TCPAddress describes it.
func appendAddr(b []byte, at netip.AddrPort) []byte {
	var room [maxAddr]byte
	ip := room[:0]
	if at.Addr().Is4() {
		v4 := at.Addr().As4()
		ip = protowire.AppendTag(ip, 1, protowire.Fixed32Type)
		ip = protowire.AppendFixed32(ip, binary.BigEndian.Uint32(v4[:]))
	} else {
		v6 := at.Addr().As16()
		ip = protowire.AppendTag(ip, 2, protowire.BytesType)
		ip = protowire.AppendVarint(ip, 18)
		ip = protowire.AppendTag(ip, 1, protowire.Fixed64Type)
		ip = protowire.AppendFixed64(ip, binary.BigEndian.Uint64(v6[:8]))
		ip = protowire.AppendTag(ip, 2, protowire.Fixed64Type)
		ip = protowire.AppendFixed64(ip, binary.BigEndian.Uint64(v6[8:]))
	}
	port := uint64(at.Port())
	b = protowire.AppendTag(b, 1, protowire.BytesType)
	b = protowire.AppendVarint(b, uint64(protowire.SizeTag(1)+protowire.SizeBytes(len(ip))+protowire.SizeTag(2)+protowire.SizeVarint(port)))
	b = protowire.AppendTag(b, 1, protowire.BytesType)
	b = protowire.AppendBytes(b, ip)
	b = protowire.AppendTag(b, 2, protowire.VarintType)
	return protowire.AppendVarint(b, port)
}
