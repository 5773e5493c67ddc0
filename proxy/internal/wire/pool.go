// Package wire reads and writes the sockets below HTTP with buffers that are
// borrowed: a connection owns none while nothing is under way on it.
package wire

import "github.com/weftmesh/weft/proxy/internal/spare"

// Size is the length of the buffers that connections are read into, in bytes:
// two TLS records.
const Size = 32 << 10

// The shelves hold arrays, for a slice put on one would be another allocation.
var (
	shelf1  = spare.Pool[[1 << 10]byte]{Small: true}
	shelf2  = spare.Pool[[2 << 10]byte]{Small: true}
	shelf4  spare.Pool[[4 << 10]byte]
	shelf16 spare.Pool[[16 << 10]byte]
	shelf32 spare.Pool[[32 << 10]byte]
	shelf64 spare.Pool[[64 << 10]byte]
)

// Get borrows a buffer of no length and of room for at least n bytes. A larger
// one than 64 KiB is not borrowed but made.
func Get(n int) []byte {
	switch {
	case n <= 1<<10:
		return shelf1.Get()[:0]
	case n <= 2<<10:
		return shelf2.Get()[:0]
	case n <= 4<<10:
		return shelf4.Get()[:0]
	case n <= 16<<10:
		return shelf16.Get()[:0]
	case n <= 32<<10:
		return shelf32.Get()[:0]
	case n <= 64<<10:
		return shelf64.Get()[:0]
	}
	return make([]byte, 0, n)
}

// Put gives a buffer of Get back. Nobody may use it any more.
func Put(b []byte) {
	spoil(b)
	switch cap(b) {
	case 1 << 10:
		shelf1.Put((*[1 << 10]byte)(b[:cap(b)]))
	case 2 << 10:
		shelf2.Put((*[2 << 10]byte)(b[:cap(b)]))
	case 4 << 10:
		shelf4.Put((*[4 << 10]byte)(b[:cap(b)]))
	case 16 << 10:
		shelf16.Put((*[16 << 10]byte)(b[:cap(b)]))
	case 32 << 10:
		shelf32.Put((*[32 << 10]byte)(b[:cap(b)]))
	case 64 << 10:
		shelf64.Put((*[64 << 10]byte)(b[:cap(b)]))
	}
}

// Reuse empties a buffer for its borrower's next use, as Put and Get together do:
// nobody may use what was in it any more. None stays none.
func Reuse(b []byte) []byte {
	spoil(b)
	return b[:0]
}

// spoil overwrites what nobody may use any more, where tests look for who does.
func spoil(b []byte) {
	if poisoned {
		for rest := b[:cap(b)]; len(rest) > 0; {
			rest = rest[copy(rest, poison[:]):]
		}
	}
}

// Append appends p to a buffer of Get, moving to a larger one if need be.
func Append(b, p []byte) []byte {
	if cap(b)-len(b) >= len(p) {
		return append(b, p...)
	}
	more := append(Get(len(b)+len(p)), b...)
	if b != nil {
		Put(b)
	}
	return append(more, p...)
}
