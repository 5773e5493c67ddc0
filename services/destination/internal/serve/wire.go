package serve

import (
	"net/netip"
	"slices"

	pb "github.com/linkerd/linkerd2-proxy-api/go/destination"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/weftmesh/weft/services/destination/internal/derive"
)

// maxMessage is about how large one Update gets, in bytes; what is more goes
// into the next. It keeps a large Service from needing one huge buffer for each
// slow client.
const maxMessage = 64 << 10

// Field numbers of destination.proto.
const (
	updateAdd    protowire.Number = 1
	updateRemove protowire.Number = 2
	setAddrs     protowire.Number = 1
)

// updates writes the messages that turn one view into another. Additions come
// first, so that a client is never left with fewer endpoints than there are.
func updates(sent, now *derive.View) []encoded {
	add, remove := derive.Diff(sent, now)
	var msgs []encoded
	if len(now.Sets) == 1 {
		msgs = adds(now.Sets[0].Labels, add)
	} else {
		for i := range now.Sets {
			of := func(a derive.Addr) bool { return int(a.Set) != i }
			msgs = append(msgs, adds(now.Sets[i].Labels, slices.DeleteFunc(slices.Clone(add), of))...)
		}
	}
	return append(msgs, removes(remove)...)
}

// adds joins addresses that are bytes already, all of one set.
func adds(labels map[string]string, addrs []derive.Addr) []encoded {
	if len(addrs) == 0 {
		return nil
	}
	shared, err := proto.MarshalOptions{Deterministic: true}.Marshal(&pb.WeightedAddrSet{MetricLabels: labels})
	if err != nil {
		shared = nil // labels are UTF-8, since the bus has nothing else
	}
	var msgs []encoded
	var set []byte
	for i, a := range addrs {
		if set == nil {
			set = make([]byte, 0, room(addrs[i:])+len(shared))
		}
		set = protowire.AppendTag(set, setAddrs, protowire.BytesType)
		set = a.Append(protowire.AppendVarint(set, uint64(a.Size())))
		if len(set) >= maxMessage || i == len(addrs)-1 {
			msgs = append(msgs, wrap(updateAdd, append(set, shared...)))
			set = nil
		}
	}
	return msgs
}

// room is what the addresses of the next message need.
func room(addrs []derive.Addr) (n int) {
	for _, a := range addrs {
		if n += protowire.SizeTag(setAddrs) + protowire.SizeBytes(a.Size()); n >= maxMessage {
			break
		}
	}
	return n
}

func removes(addrs []netip.AddrPort) []encoded {
	var msgs []encoded
	var set []byte
	for i, at := range addrs {
		one, err := proto.Marshal(derive.TCPAddress(at))
		if err != nil {
			continue // numbers only: nothing in it can fail
		}
		set = protowire.AppendTag(set, setAddrs, protowire.BytesType)
		set = protowire.AppendBytes(set, one)
		if len(set) >= maxMessage || i == len(addrs)-1 {
			msgs = append(msgs, wrap(updateRemove, set))
			set = nil
		}
	}
	return msgs
}

func wrap(field protowire.Number, body []byte) encoded {
	out := make([]byte, 0, len(body)+protowire.SizeTag(field)+protowire.SizeBytes(len(body)))
	out = protowire.AppendTag(out, field, protowire.BytesType)
	return protowire.AppendBytes(out, body)
}
