// Package span carries the traces of applications on (spec/proxy.md §14). It
// reads the context of a trace from a request, in the formats of W3C and B3, puts
// a span of its own into it, and sends the span to a collector. It never begins a
// trace, and a trace that is not sampled is carried on but not reported.
package span

import (
	"encoding/base64"
	"encoding/hex"
	"math/rand/v2"
	"strings"

	"github.com/weftmesh/weft/proxy/internal/message"
)

// Format is how a request carries its context.
type Format uint8

// The formats, in the order in which they are looked for.
const (
	W3C Format = iota
	B3GRPC
	B3HTTP
)

// Context is where in a trace a request is.
type Context struct {
	Format  Format
	Trace   [16]byte
	Span    [8]byte // of the caller
	Sampled bool
	flags   byte
}

const (
	fieldW3C     = "traceparent"
	fieldGRPC    = "grpc-trace-bin"
	fieldTrace   = "x-b3-traceid"
	fieldSpan    = "x-b3-spanid"
	fieldSampled = "x-b3-sampled"
)

// Parse finds the context of a request.
func Parse(f message.Fields) (Context, bool) {
	if s, ok := f.Find(fieldW3C); ok {
		if c, ok := parseW3C(s); ok {
			return c, true
		}
	}
	if s, ok := f.Find(fieldGRPC); ok {
		if c, ok := parseGRPC(s); ok {
			return c, true
		}
	}
	return parseHTTP(f)
}

// parseW3C reads version 00: 00-<32 hex>-<16 hex>-<2 hex>.
func parseW3C(s string) (c Context, ok bool) {
	s = strings.TrimSpace(s)
	if len(s) != 55 || s[:3] != "00-" || s[35] != '-' || s[52] != '-' {
		return c, false
	}
	var flags [1]byte
	if !unhex(c.Trace[:], s[3:35]) || !unhex(c.Span[:], s[36:52]) || !unhex(flags[:], s[53:]) {
		return c, false
	}
	c.Format, c.flags, c.Sampled = W3C, flags[0], flags[0]&1 != 0
	return c, c.Trace != [16]byte{} && c.Span != [8]byte{}
}

// parseGRPC reads the binary format: fields 0 (trace), 1 (span) and 2 (flags), each
// behind its number. A field of another number ends what can be read.
func parseGRPC(s string) (c Context, ok bool) {
	b, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(strings.TrimSpace(s), "="))
	if err != nil || len(b) == 0 {
		return c, false
	}
	c.Format = B3GRPC
	var trace, span bool
	for b = b[1:]; len(b) > 0 && b[0] <= 2; {
		id, rest := b[0], b[1:]
		switch {
		case id == 0 && len(rest) >= 16:
			copy(c.Trace[:], rest)
			b, trace = rest[16:], true
		case id == 1 && len(rest) >= 8:
			copy(c.Span[:], rest)
			b, span = rest[8:], true
		case id == 2 && len(rest) >= 1:
			c.flags = rest[0]
			b = rest[1:]
		default:
			return c, false
		}
	}
	c.Sampled = c.flags&1 != 0
	return c, trace && span
}

// parseHTTP reads the three fields of B3; short ids are padded on the left.
func parseHTTP(f message.Fields) (c Context, ok bool) {
	trace, span := f.Get(fieldTrace), f.Get(fieldSpan)
	if !padded(c.Trace[:], trace) || !padded(c.Span[:], span) {
		return c, false
	}
	c.Format = B3HTTP
	c.Sampled = strings.TrimSpace(f.Get(fieldSampled)) == "1"
	return c, true
}

func padded(dst []byte, s string) bool {
	s = strings.TrimSpace(s)
	if s == "" || len(s)%2 != 0 || len(s) > 2*len(dst) {
		return false
	}
	return unhex(dst[len(dst)-len(s)/2:], s)
}

func unhex(dst []byte, s string) bool {
	n, err := hex.Decode(dst, []byte(s))
	return err == nil && n == len(dst)
}

// Next is a new span's number.
func Next() (id [8]byte) {
	for n := uint64(0); n == 0; {
		n = rand.Uint64() //nolint:gosec // an identifier, not a secret
		for i := range id {
			id[i] = byte(n >> (8 * i))
		}
	}
	return id
}

// Write makes the span the parent of what follows, in the format of the context.
func (c Context) Write(f *message.Fields, span [8]byte) {
	switch c.Format {
	case W3C:
		b := make([]byte, 0, 55)
		b = append(b, "00-"...)
		b = hex.AppendEncode(b, c.Trace[:])
		b = append(b, '-')
		b = hex.AppendEncode(b, span[:])
		b = append(b, '-')
		b = hex.AppendEncode(b, []byte{c.flags})
		f.Set(fieldW3C, string(b))
	case B3GRPC:
		b := make([]byte, 0, 29)
		b = append(append(b, 0, 0), c.Trace[:]...)
		b = append(append(b, 1), span[:]...)
		b = append(b, 2, c.flags)
		f.Set(fieldGRPC, base64.StdEncoding.EncodeToString(b))
	case B3HTTP:
		f.Set(fieldSpan, hex.EncodeToString(span[:]))
	}
}
