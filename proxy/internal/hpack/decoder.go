package hpack

import (
	"bytes"
	"errors"
	"hash/maphash"

	"golang.org/x/net/http2/hpack"

	"github.com/weftmesh/weft/proxy/internal/message"
)

// Errors of decoding. All but ErrTooLong end the connection (RFC 9113 §4.3); a
// list that is too long has been decoded to its end, so the connection can go on.
var (
	ErrIndex   = errors.New("hpack: an index beyond the tables")
	ErrInteger = errors.New("hpack: an integer that is too large")
	ErrShort   = errors.New("hpack: the block ends in the middle of a field")
	ErrHuffman = errors.New("hpack: a string that is no Huffman code")
	ErrResize  = errors.New("hpack: a table size that was not allowed, or in the middle of a block")
	ErrTooLong = errors.New("hpack: the list of fields is too long")
)

// DefaultTable is the size of a dynamic table before anyone has said another, in
// bytes (RFC 9113 §6.5.2).
const DefaultTable = 4096

const (
	// interned is how many strings that are in no table are remembered, so that
	// saying them again costs no memory.
	interned = 64
	// internMax is the length of the longest of them, in bytes.
	internMax = 64
)

// A Decoder reads the blocks of one direction of a connection. It is for one
// goroutine. The zero value is ready, with a table of DefaultTable bytes.
type Decoder struct {
	table   table
	begun   bool
	allowed int // what we have allowed the peer
	scratch bytes.Buffer
	seen    *[interned]string
	store   *message.Store // of the block that is being read; nil is the heap
	seed    maphash.Seed
}

// Allow sets how large a table the peer may use, once it has acknowledged it.
func (d *Decoder) Allow(most int) {
	d.begin()
	d.allowed = most
	if d.table.max > most {
		d.table.resize(most)
	}
}

func (d *Decoder) begin() {
	if !d.begun {
		d.begun, d.allowed, d.table.max, d.seed = true, DefaultTable, DefaultTable, maphash.MakeSeed()
	}
}

// Decode appends the fields of a block to dst. A list of more than limit bytes
// (RFC 9113 §6.5.2) is read to its end, for the sake of the table, and reported
// as ErrTooLong. What is in no table is kept by the store, and valid as long as
// that is; a nil store makes strings of it.
func (d *Decoder) Decode(dst message.Fields, block []byte, limit int, store *message.Store) (message.Fields, error) {
	d.begin()
	d.store = store
	dst, err := d.decode(dst, block, limit)
	d.store = nil
	return dst, err
}

func (d *Decoder) decode(dst message.Fields, block []byte, limit int) (message.Fields, error) {
	size, first, resizes := 0, true, 0
	for len(block) > 0 {
		c := block[0]
		if c >= 0x80 && c < 0xff { // indexed, in one byte: most are
			p, err := d.entry(int(c & 0x7f))
			if err != nil {
				return dst, err
			}
			block, first = block[1:], false
			if size += p.size(); size <= limit {
				// Word by word: to append a whole field is to copy it at once before it has
				// been written, for which the processor waits.
				dst = append(dst, message.Field{})
				f := &dst[len(dst)-1]
				f.Name, f.Value = p.name, p.value
			}
			continue
		}
		var f message.Field
		var err error
		switch {
		case c >= 0x80: // indexed
			f, block, err = d.indexed(block)
		case c >= 0x40: // to be indexed
			if f, block, err = d.literal(block, 6, true); err == nil {
				d.table.add(pair{f.Name, f.Value})
			}
		case c >= 0x20: // table size
			if resizes++; !first || resizes > 2 {
				return dst, ErrResize
			}
			if block, err = d.resize(block); err != nil {
				return dst, err
			}
			continue
		default: // not to be indexed, or never
			f, block, err = d.literal(block, 4, false)
			f.Sensitive = c >= 0x10
		}
		if err != nil {
			return dst, err
		}
		first = false
		if size += f.Size(); size <= limit {
			dst = append(dst, f)
		}
	}
	if size > limit {
		return dst, ErrTooLong
	}
	return dst, nil
}

func (d *Decoder) resize(block []byte) ([]byte, error) {
	n, rest, err := integer(block, 5)
	if err != nil {
		return nil, err
	}
	if n > d.allowed {
		return nil, ErrResize
	}
	d.table.resize(n)
	return rest, nil
}

func (d *Decoder) entry(index int) (pair, error) {
	switch {
	case index == 0:
		return pair{}, ErrIndex
	case index <= statics:
		return static[index], nil
	}
	p, ok := d.table.get(index - statics)
	if !ok {
		return pair{}, ErrIndex
	}
	return p, nil
}

func (d *Decoder) indexed(block []byte) (message.Field, []byte, error) {
	index, rest, err := integer(block, 7)
	if err != nil {
		return message.Field{}, nil, err
	}
	p, err := d.entry(index)
	return message.Field{Name: p.name, Value: p.value}, rest, err
}

// literal reads a field whose name may be in a table; bits are those of the
// index in the first byte. lasting strings go into the table.
func (d *Decoder) literal(block []byte, bits uint, lasting bool) (f message.Field, rest []byte, err error) {
	index, rest, err := integer(block, bits)
	if err != nil {
		return f, nil, err
	}
	if index > 0 {
		p, err := d.entry(index)
		if err != nil {
			return f, nil, err
		}
		f.Name = p.name
	} else if f.Name, rest, err = d.text(rest, lasting); err != nil {
		return f, nil, err
	}
	f.Value, rest, err = d.text(rest, lasting)
	return f, rest, err
}

// text reads a string.
func (d *Decoder) text(block []byte, lasting bool) (string, []byte, error) {
	if len(block) == 0 {
		return "", nil, ErrShort
	}
	coded := block[0] >= 0x80
	n, rest, err := integer(block, 7)
	if err != nil {
		return "", nil, err
	}
	if n > len(rest) {
		return "", nil, ErrShort
	}
	raw, rest := rest[:n], rest[n:]
	if coded {
		d.scratch.Reset()
		if _, err := hpack.HuffmanDecode(&d.scratch, raw); err != nil {
			return "", nil, ErrHuffman
		}
		raw = d.scratch.Bytes()
	}
	if !lasting && d.store != nil {
		return d.store.String(raw), rest, nil
	}
	return d.intern(raw), rest, nil
}

func (d *Decoder) intern(raw []byte) string {
	if len(raw) == 0 || len(raw) > internMax {
		return string(raw)
	}
	if d.seen == nil {
		d.seen = new([interned]string)
	}
	slot := &d.seen[maphash.Bytes(d.seed, raw)%interned]
	if *slot != string(raw) {
		*slot = string(raw)
	}
	return *slot
}

// Shrink forgets what only saves work: an idle connection keeps the table alone.
func (d *Decoder) Shrink() {
	d.seen = nil
	d.scratch = bytes.Buffer{}
}

// maxInteger bounds integers: nothing in a block of a sane size is larger.
const maxInteger = 1 << 28

// integer reads a number with a prefix of so many bits (RFC 7541 §5.1).
func integer(b []byte, bits uint) (int, []byte, error) {
	if len(b) == 0 {
		return 0, nil, ErrShort
	}
	top := 1<<bits - 1
	n := int(b[0]) & top
	b = b[1:]
	if n < top {
		return n, b, nil
	}
	for shift := uint(0); len(b) > 0; shift += 7 {
		c := b[0]
		b = b[1:]
		if n += int(c&0x7f) << shift; n > maxInteger || shift > 28 {
			return 0, nil, ErrInteger
		}
		if c < 0x80 {
			return n, b, nil
		}
	}
	return 0, nil, ErrShort
}
