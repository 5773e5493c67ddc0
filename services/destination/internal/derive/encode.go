package derive

import (
	"slices"
	"unicode/utf8"

	pb "github.com/linkerd/linkerd2-proxy-api/go/destination"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// Field numbers of destination.proto's WeightedAddr.
const (
	weightField protowire.Number = 3
	labelsField protowire.Number = 4
)

// Near is all that an answer says of one address to clients of one zone alone:
// the label zone_locality, and the weight if that depends on it.
type Near uint8

const (
	nearUnknown Near = iota
	nearLocal
	nearRemote
	nearFavoured // local, with a greater weight
)

// nears are their bytes.
var nears = [...][]byte{
	nearUnknown:  near("unknown", defaultWeight),
	nearLocal:    near("local", defaultWeight),
	nearRemote:   near("remote", defaultWeight),
	nearFavoured: near("local", defaultWeight*zoneFactor),
}

func near(locality string, weight uint64) []byte {
	b := protowire.AppendTag(nil, weightField, protowire.VarintType)
	return appendLabel(protowire.AppendVarint(b, weight), "zone_locality", locality)
}

// near compares a client's zone with an endpoint's. An address without a workload
// has none.
func (c Config) near(b candidate, zone string) Near {
	at := ""
	if b.Peer.Workload != nil {
		at = b.Endpoint.Zone.Value()
	}
	switch l := locality(zone, at); {
	case l == "remote":
		return nearRemote
	case l == "unknown":
		return nearUnknown
	case c.ZoneWeights:
		return nearFavoured
	default:
		return nearLocal
	}
}

// Size is that of the WeightedAddr in bytes.
func (a Addr) Size() int { return len(a.Bytes) + len(nears[a.Near]) }

// Append writes the WeightedAddr.
func (a Addr) Append(b []byte) []byte { return append(append(b, a.Bytes...), nears[a.Near]...) }

// encode is deterministic, so that equal addresses compare equal. The labels are
// most of an address, and written by hand: by reflection they were a fifth of what
// a stream's start costs. They come last, which no reader minds. The weight is
// left to Near. Strings that are not UTF-8 cannot come from the bus, which refuses
// them; the error says so should it ever change.
func encode(wa *pb.WeightedAddr) ([]byte, error) {
	labels := wa.MetricLabels
	wa.MetricLabels, wa.Weight = nil, 0
	opts := proto.MarshalOptions{Deterministic: true}
	var room [12]string
	keys, n := room[:0], 0
	for k, v := range labels {
		if !utf8.ValidString(k) || !utf8.ValidString(v) {
			return nil, errNotUTF8
		}
		keys = append(keys, k)
		n += protowire.SizeTag(labelsField) + protowire.SizeBytes(labelSize(k, v))
	}
	slices.Sort(keys)
	b, err := opts.MarshalAppend(make([]byte, 0, opts.Size(wa)+n), wa)
	if err != nil {
		return nil, err
	}
	for _, k := range keys {
		b = appendLabel(b, k, labels[k])
	}
	return b, nil
}

// appendLabel writes one entry of metric_labels.
func appendLabel(b []byte, key, value string) []byte {
	b = protowire.AppendTag(b, labelsField, protowire.BytesType)
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
