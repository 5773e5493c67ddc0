package serve

import (
	"net/netip"
	"slices"

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
		msgs = adds(now, 0, add)
	} else {
		for i := range now.Sets {
			of := func(a derive.Addr) bool { return int(a.Set) != i }
			msgs = append(msgs, adds(now, i, slices.DeleteFunc(slices.Clone(add), of))...)
		}
	}
	return append(msgs, removes(remove)...)
}

// adds joins addresses that are bytes already, all of one set.
func adds(view *derive.View, set int, addrs []derive.Addr) []encoded {
	var msgs []encoded
	labels := view.Sets[set].Labels
	for len(addrs) > 0 {
		n, size := fit(view, addrs)
		size += len(labels)
		out := open(updateAdd, size)
		for _, a := range addrs[:n] {
			out = protowire.AppendTag(out, setAddrs, protowire.BytesType)
			out = view.Append(protowire.AppendVarint(out, uint64(view.Size(a))), a)
		}
		msgs = append(msgs, ready(append(out, labels...)))
		addrs = addrs[n:]
	}
	return msgs
}

// fit tells how many addresses the next message has, and their size in it.
func fit(view *derive.View, addrs []derive.Addr) (n, size int) {
	for n < len(addrs) && size < maxMessage {
		size += protowire.SizeTag(setAddrs) + protowire.SizeBytes(view.Size(addrs[n]))
		n++
	}
	return n, size
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
			msgs = append(msgs, ready(append(open(updateRemove, len(set)), set...)))
			set = nil
		}
	}
	return msgs
}

// open begins a message of one field with room for its body.
func open(field protowire.Number, body int) []byte {
	out := make([]byte, 0, protowire.SizeTag(field)+protowire.SizeBytes(body))
	out = protowire.AppendTag(out, field, protowire.BytesType)
	return protowire.AppendVarint(out, uint64(body))
}
