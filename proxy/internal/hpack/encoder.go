// Package hpack compresses the fields of HTTP/2 (RFC 7541) in the way that suits
// a proxy: what has been said twice enters the table, so that values that are
// said once (a trace's number, a time) do not push out those that come again;
// strings are not Huffman coded, for bytes are cheap between pods and cycles are
// not. The decoder takes everything that the RFC allows.
package hpack

import (
	"hash/maphash"
	"strings"
	"unsafe"

	"github.com/weftmesh/weft/proxy/internal/message"
)

const (
	// slots is how many pairs the encoder finds without searching.
	slots = 128
	// maxTable is the largest table that the encoder uses, in bytes, whatever the
	// peer allows: a proxy has many connections.
	maxTable = 4096
)

// An Encoder writes the blocks of one direction of a connection. It is for one
// goroutine at a time. The zero value is ready.
type Encoder struct {
	table table
	begun bool
	seed  maphash.Seed
	index *index
	name  []byte // scratch of lower

	resized bool // the peer must be told of another size
	least   int  // the smallest that the size has been since it was told
}

// index finds what is in the table, and what was said before.
type index struct {
	pairs [slots]slot
	names [slots]slot
	once  [slots]uint64 // hashes of pairs that were said once
}

// A slot names an entry of the static (below statics) or dynamic table.
type slot struct {
	hash   uint64
	number uint64 // of the dynamic table
	static uint8
}

// Limit tells how large a table the peer allows. The next block says so.
func (e *Encoder) Limit(most uint32) {
	e.begin()
	size := int(min(most, maxTable))
	if size == e.table.max && !e.resized {
		return
	}
	if !e.resized {
		e.least = size
	}
	e.resized, e.least = true, min(e.least, size)
	e.table.resize(size)
}

func (e *Encoder) begin() {
	if !e.begun {
		e.begun, e.table.max, e.seed = true, DefaultTable, maphash.MakeSeed()
	}
	if e.index == nil {
		e.index = new(index)
	}
}

// Shrink forgets what only saves work.
func (e *Encoder) Shrink() { e.index, e.name = nil, nil }

// Idle reports whether there is nothing to forget.
func (e *Encoder) Idle() bool { return e.index == nil }

// Begin starts a block: it appends what must come before the first field.
func (e *Encoder) Begin(dst []byte) []byte {
	e.begin()
	if !e.resized {
		return dst
	}
	e.resized = false
	if e.least < e.table.max {
		dst = appendInteger(dst, 0x20, 5, e.least)
	}
	return appendInteger(dst, 0x20, 5, e.table.max)
}

// Append appends a field, its name in lower case. The name and the value may be
// kept in the table.
func (e *Encoder) Append(dst []byte, name, value string, sensitive bool) []byte {
	if !sensitive {
		if known, ok := e.Again(dst, name, value); ok {
			return known
		}
	}
	name = e.lower(name)
	nameHash := quickName(name)
	hash := pairHash(nameHash, value)
	if sensitive {
		return e.literal(dst, 0x10, 4, name, nameHash, value)
	}
	at, other := e.places(hash)
	if !e.free(at) && (e.free(other) || hash&(1<<63) != 0) {
		at = other
	}
	if s := staticPair(name, value); s > 0 {
		*at = slot{hash: hash, static: uint8(s)}
		return appendInteger(dst, 0x80, 7, s)
	}
	size := pair{name, value}.size()
	said := nameHash ^ maphash.String(e.seed, value)
	if once := &e.index.once[said%slots]; *once != said {
		*once = said
		return e.literal(dst, 0, 4, name, nameHash, value)
	}
	if size > e.table.max/4 {
		return e.literal(dst, 0, 4, name, nameHash, value)
	}
	dst = e.literal(dst, 0x40, 6, name, nameHash, value)
	// The strings may be parts of a large head: the table keeps its own.
	e.table.add(pair{strings.Clone(name), strings.Clone(value)})
	*at = slot{hash: hash, number: e.table.added}
	e.index.names[nameHash%slots] = slot{hash: nameHash, number: e.table.added}
	return dst
}

// Again appends a field that Append has put into the table, or found in the static
// one; it reports whether there is one.
func (e *Encoder) Again(dst []byte, name, value string) ([]byte, bool) {
	hash := pairHash(quickName(name), value)
	first, second := e.places(hash)
	at := first
	if at.hash != hash {
		if at = second; at.hash != hash {
			return dst, false
		}
	}
	p, n := &static[at.static], int(at.static)
	if n == 0 {
		if p = e.table.ref(at.number); p == nil {
			return dst, false
		}
		n = statics + e.table.index(at.number)
	}
	if p.value != value || p.name != name && !message.Is(p.name, name) {
		return dst, false
	}
	return appendInteger(dst, 0x80, 7, n), true
}

func pairHash(name uint64, value string) uint64 { return name*0x9e3779b97f4a7c15 ^ quick(value) }

// places are the two that a pair may have, so that two pairs that come in every block
// need not fight for one.
func (e *Encoder) places(hash uint64) (first, second *slot) {
	return &e.index.pairs[hash%slots], &e.index.pairs[(hash>>32)%slots]
}

// free reports whether a slot names nothing, or what is not in the table any more.
func (e *Encoder) free(at *slot) bool {
	if at.static > 0 {
		return false
	}
	_, ok := e.table.at(at.number)
	return !ok
}

// literal appends a field in full; its name as an index if one is known.
func (e *Encoder) literal(dst []byte, kind byte, bits uint, name string, nameHash uint64, value string) []byte {
	at := 0
	if s := staticNames[name]; s > 0 {
		at = int(s)
	} else if n := e.index.names[nameHash%slots]; n.hash == nameHash {
		if p, ok := e.table.at(n.number); ok && p.name == name {
			at = statics + e.table.index(n.number)
		}
	}
	dst = appendInteger(dst, kind, bits, at)
	if at == 0 {
		dst = appendText(dst, name)
	}
	return appendText(dst, value)
}

// lower is the name in lower case, valid until the next call; HTTP/1 may have
// written it otherwise.
func (e *Encoder) lower(name string) string {
	if !hasUpper(name) {
		return name
	}
	e.name = append(e.name[:0], name...)
	for i, c := range e.name {
		if 'A' <= c && c <= 'Z' {
			e.name[i] = c + ('a' - 'A')
		}
	}
	return unsafe.String(&e.name[0], len(e.name)) //nolint:gosec // hasUpper: it is not empty; its life is in the comment
}

func hasUpper(s string) bool {
	for i := range len(s) {
		if 'A' <= s[i] && s[i] <= 'Z' {
			return true
		}
	}
	return false
}

// AppendFields appends a whole list.
func (e *Encoder) AppendFields(dst []byte, fields message.Fields) []byte {
	for i := range fields {
		dst = e.Append(dst, fields[i].Name, fields[i].Value, fields[i].Sensitive)
	}
	return dst
}

func appendText(dst []byte, s string) []byte {
	dst = appendInteger(dst, 0, 7, len(s))
	return append(dst, s...)
}

func appendInteger(dst []byte, kind byte, bits uint, n int) []byte {
	top := 1<<bits - 1
	if n < top {
		return append(dst, kind|byte(n))
	}
	dst = append(dst, kind|byte(top))
	for n -= top; n >= 0x80; n >>= 7 {
		dst = append(dst, 0x80|byte(n&0x7f))
	}
	return append(dst, byte(n))
}
