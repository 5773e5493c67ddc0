package message

import (
	"unsafe"

	"github.com/weftmesh/weft/proxy/internal/spare"
	"github.com/weftmesh/weft/proxy/internal/wire"
)

// A Store is the memory of the heads of one exchange's one side. Its strings are
// views into borrowed buffers: they are valid until Release, which the end of the
// exchange brings. Whoever keeps a string of a message for longer, or gives it to a
// goroutine that is not waited for, clones it (strings.Clone, Fields.Keep).
// Built with the race detector, buffers are overwritten when they are given back
// (wire.Put), so that what was kept shows up in tests.
//
// A Store has one writer; the strings may be read by anybody.
type Store struct {
	text   []byte   // the buffer that is being filled
	full   [][]byte // those before it
	fields Fields   // memory for one list
	lines  int      // the most that a list in it has had when it was read
}

const (
	// fieldsRoom is the room for fields that comes with a Store, and fieldsKept the
	// most that one keeps.
	fieldsRoom, fieldsKept = 24, 128
	textRoom               = 1 << 10 // of the first buffer, which stays, in bytes
)

var stores = spare.Pool[Store]{Small: true, Make: func() *Store { return &Store{fields: make(Fields, 0, fieldsRoom)} }}

// NewStore borrows a store.
func NewStore() *Store { return stores.Get() }

// String copies p and returns it as a string that is valid until Release.
func (s *Store) String(p []byte) string {
	if len(p) == 0 {
		return ""
	}
	if cap(s.text)-len(s.text) < len(p) {
		switch {
		case len(s.text) > 0:
			s.full = append(s.full, s.text)
		case s.text != nil:
			wire.Put(s.text)
		}
		s.text = wire.Get(max(len(p), textRoom))
	}
	at := len(s.text)
	s.text = append(s.text, p...)
	return unsafe.String(&s.text[at], len(p)) //nolint:gosec // len(p) bytes were just appended at this place; Release ends it
}

// Fields is an empty list with room, the same memory each time.
func (s *Store) Fields() Fields { return s.fields[:0] }

// Reuse tells that a list that began as Fields has been read. If it has grown, the
// larger memory is kept for the next.
func (s *Store) Reuse(f Fields) {
	s.lines = max(s.lines, len(f))
	if cap(f) > cap(s.fields) && cap(f) <= fieldsKept {
		s.fields = f
	}
}

// Release gives the memory back. No string of the store may be used any more.
func (s *Store) Release() {
	for i, b := range s.full {
		wire.Put(b)
		s.full[i] = nil
	}
	s.full = s.full[:0]
	if cap(s.text) > textRoom {
		wire.Put(s.text)
		s.text = nil
	} else {
		s.text = wire.Reuse(s.text)
	}
	s.fields[:min(s.lines, cap(s.fields))].Forget()
	s.lines = 0
	stores.Put(s)
}

// Forget empties a list's memory: its lines, and those behind them up to the first
// without a name. The most of the memory has never been used.
func (f Fields) Forget() {
	clear(f)
	f = f[:cap(f)][len(f):]
	for i := range f {
		if f[i].Name == "" {
			return
		}
		f[i] = Field{}
	}
}

// Keep returns fields that do not depend on any store.
func (f Fields) Keep() Fields {
	if f == nil {
		return nil
	}
	size := 0
	for i := range f {
		size += len(f[i].Name) + len(f[i].Value)
	}
	text := make([]byte, 0, size)
	own := func(s string) string {
		if s == "" {
			return ""
		}
		at := len(text)
		text = append(text, s...)
		return unsafe.String(&text[at], len(s)) //nolint:gosec // just appended, and never written again
	}
	kept := make(Fields, len(f))
	for i := range f {
		kept[i] = Field{Name: own(f[i].Name), Value: own(f[i].Value), Sensitive: f[i].Sensitive, Sound: f[i].Sound}
	}
	return kept
}
