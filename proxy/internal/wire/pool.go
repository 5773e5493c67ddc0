// Package wire reads and writes the sockets below HTTP with buffers that are
// borrowed: a connection owns none while nothing is under way on it.
package wire

import "sync"

// Size is the length of the buffers that connections are read into, in bytes:
// two TLS records.
const Size = 32 << 10

// The pools hold arrays, for a slice put into a pool would be another allocation.
var (
	pool1  = sync.Pool{New: func() any { return new([1 << 10]byte) }}
	pool4  = sync.Pool{New: func() any { return new([4 << 10]byte) }}
	pool16 = sync.Pool{New: func() any { return new([16 << 10]byte) }}
	pool32 = sync.Pool{New: func() any { return new([32 << 10]byte) }}
	pool64 = sync.Pool{New: func() any { return new([64 << 10]byte) }}
)

// Get borrows a buffer of no length and of room for at least n bytes. A larger
// one than 64 KiB is not borrowed but made.
func Get(n int) []byte {
	switch {
	case n <= 1<<10:
		return pool1.Get().(*[1 << 10]byte)[:0]
	case n <= 4<<10:
		return pool4.Get().(*[4 << 10]byte)[:0]
	case n <= 16<<10:
		return pool16.Get().(*[16 << 10]byte)[:0]
	case n <= 32<<10:
		return pool32.Get().(*[32 << 10]byte)[:0]
	case n <= 64<<10:
		return pool64.Get().(*[64 << 10]byte)[:0]
	}
	return make([]byte, 0, n)
}

// Put gives a buffer of Get back. Nobody may use it any more.
func Put(b []byte) {
	spoil(b)
	switch cap(b) {
	case 1 << 10:
		pool1.Put((*[1 << 10]byte)(b[:cap(b)]))
	case 4 << 10:
		pool4.Put((*[4 << 10]byte)(b[:cap(b)]))
	case 16 << 10:
		pool16.Put((*[16 << 10]byte)(b[:cap(b)]))
	case 32 << 10:
		pool32.Put((*[32 << 10]byte)(b[:cap(b)]))
	case 64 << 10:
		pool64.Put((*[64 << 10]byte)(b[:cap(b)]))
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
