package derive

import (
	"slices"
	"unicode/utf8"

	pb "github.com/linkerd/linkerd2-proxy-api/go/destination"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// Field numbers of destination.proto's WeightedAddr, and of WeightedAddrSet.
const (
	weightField    protowire.Number = 3
	labelsField    protowire.Number = 4
	setLabelsField protowire.Number = 2
)

// near is all that an answer says of one address to clients of one zone alone:
// the label zone_locality, and the weight if that depends on it.
type near uint8

const (
	nearUnknown near = iota
	nearLocal
	nearRemote
	nearFavoured // local, with a greater weight
)

// nears are their bytes.
var nears = [...][]byte{
	nearUnknown:  nearBytes("unknown", defaultWeight),
	nearLocal:    nearBytes("local", defaultWeight),
	nearRemote:   nearBytes("remote", defaultWeight),
	nearFavoured: nearBytes("local", defaultWeight*zoneFactor),
}

func nearBytes(locality string, weight uint64) []byte {
	b := protowire.AppendTag(nil, weightField, protowire.VarintType)
	return appendLabel(protowire.AppendVarint(b, weight), labelsField, "zone_locality", locality)
}

// near compares the clients' zone with an endpoint's. An address without a workload
// has none.
func (v *View) near(a Addr) near {
	at := ""
	if a.from.Peer.Workload != nil {
		at = a.from.Endpoint.Zone.Value()
	}
	switch l := locality(v.zone, at); {
	case l == "remote":
		return nearRemote
	case l == "unknown":
		return nearUnknown
	case v.favours:
		return nearFavoured
	default:
		return nearLocal
	}
}

// Size is that of an address's WeightedAddr in bytes.
func (v *View) Size(a Addr) int { return len(a.Bytes) + len(nears[v.near(a)]) }

// Append writes an address's WeightedAddr.
func (v *View) Append(b []byte, a Addr) []byte {
	return append(append(b, a.Bytes...), nears[v.near(a)]...)
}

// encode is deterministic, so that equal addresses compare equal. The labels are
// most of an address, and written by hand: by reflection they were a fifth of what
// a stream's start costs. They come last, which no reader minds. The weight is
// left to near. Strings that are not UTF-8 cannot come from the bus, which refuses
// them; the error says so should it ever change.
func encode(wa *pb.WeightedAddr) ([]byte, error) {
	labels := wa.MetricLabels
	wa.MetricLabels, wa.Weight = nil, 0
	opts := proto.MarshalOptions{Deterministic: true}
	n, err := labelsSize(labels)
	if err != nil {
		return nil, err
	}
	b, err := opts.MarshalAppend(make([]byte, 0, opts.Size(wa)+n), wa)
	if err != nil {
		return nil, err
	}
	return appendLabels(b, labelsField, labels), nil
}

// labelsSize is that of a WeightedAddr's labels, which must be UTF-8.
func labelsSize(labels map[string]string) (n int, err error) {
	for k, v := range labels {
		if !utf8.ValidString(k) || !utf8.ValidString(v) {
			return 0, errNotUTF8
		}
		n += protowire.SizeTag(labelsField) + protowire.SizeBytes(labelSize(k, v))
	}
	return n, nil
}

// appendLabels writes all entries of a field of labels, in order.
func appendLabels(b []byte, field protowire.Number, labels map[string]string) []byte {
	var room [12]string
	keys := room[:0]
	for k := range labels {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	for _, k := range keys {
		b = appendLabel(b, field, k, labels[k])
	}
	return b
}

// appendLabel writes one entry.
func appendLabel(b []byte, field protowire.Number, key, value string) []byte {
	b = protowire.AppendTag(b, field, protowire.BytesType)
	b = protowire.AppendVarint(b, uint64(labelSize(key, value)))
	b = protowire.AppendTag(b, 1, protowire.BytesType)
	b = protowire.AppendString(b, key)
	b = protowire.AppendTag(b, 2, protowire.BytesType)
	return protowire.AppendString(b, value)
}

// labelSize is that of one entry of the map: both fields, with tags of a byte.
func labelSize(key, value string) int {
	return 2 + protowire.SizeBytes(len(key)) + protowire.SizeBytes(len(value))
}
