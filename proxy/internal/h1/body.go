package h1

import (
	"bytes"
	"errors"
	"io"

	"github.com/weftmesh/weft/proxy/internal/message"
	"github.com/weftmesh/weft/proxy/internal/wire"
)

var errChunk = errors.New("the body's chunks are malformed")

// body reads what follows a head. It is for one goroutine.
type body struct {
	in   *wire.Reader
	most int // of a trailer, in bytes

	framing framing
	left    uint64 // of the length, or of the chunk
	state   chunkState
	taken   int // bytes of the piece that has been given out
	looked  int // of a trailer, in bytes: its end is not in them
	trailer message.Fields
	err     error // of the end; io.EOF mostly
}

type chunkState uint8

const (
	chunkSize chunkState = iota
	chunkData
	chunkEnd // the line end behind its data
	chunkTrailer
)

// maxChunkLine bounds the line of a chunk's size, extensions included, in bytes.
const maxChunkLine = 4 << 10

func (b *body) reset(in *wire.Reader, f framing, length int64, most int) {
	*b = body{in: in, framing: f, most: most}
	switch f {
	case none:
		b.err = io.EOF
	case sized:
		b.left = uint64(max(0, length))
	}
}

// over reports whether the end has been read.
func (b *body) over() bool { return errors.Is(b.err, io.EOF) }

// next is the next piece, borrowed until the next call.
func (b *body) next() ([]byte, error) {
	b.in.Take(b.taken)
	b.taken = 0
	for b.err == nil {
		p, err := b.step()
		if len(p) > 0 {
			b.taken = len(p)
			if b.framing == sized && b.left == 0 {
				b.err = io.EOF // with the last piece: nobody need ask
			}
			return p, nil
		}
		if err != nil {
			b.err = err
		}
	}
	return nil, b.err
}

// ready reports whether next would not wait.
func (b *body) ready() bool {
	if b.err != nil {
		return true
	}
	rest := b.in.Bytes()[b.taken:]
	if b.framing != chunked || b.state == chunkData && b.left > 0 {
		return len(rest) > 0
	}
	state := b.state
	if state == chunkData {
		state = chunkEnd
	}
	if state == chunkEnd {
		i := bytes.IndexByte(rest, '\n')
		if i < 0 {
			return false
		}
		rest, state = rest[i+1:], chunkSize
	}
	if state == chunkSize {
		i := bytes.IndexByte(rest, '\n')
		if i < 0 {
			return false
		}
		n, ok := size(bytes.TrimSuffix(rest[:i], []byte("\r")))
		rest = rest[i+1:]
		switch {
		case !ok:
			return true // an error is something
		case n > 0:
			return len(rest) > 0
		}
	}
	return bytes.HasPrefix(rest, []byte("\r\n")) || headEnd(rest, b.looked) > 0
}

func (b *body) fill(most int) error {
	err := b.in.Fill(most)
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// step does one thing, and returns data if there is some.
func (b *body) step() ([]byte, error) {
	switch b.framing {
	case sized:
		if b.left == 0 {
			return nil, io.EOF
		}
	case toEnd:
		if len(b.in.Bytes()) == 0 {
			return nil, b.in.Fill(wire.Size)
		}
		return b.in.Bytes(), nil
	case chunked:
		if b.state != chunkData {
			return nil, b.line()
		}
		if b.left == 0 {
			b.state = chunkEnd
			return nil, nil
		}
	case none:
		return nil, io.EOF
	}
	if len(b.in.Bytes()) == 0 {
		return nil, b.fill(wire.Size)
	}
	p := b.in.Bytes()
	p = p[:min(uint64(len(p)), b.left)]
	b.left -= uint64(len(p))
	return p, nil
}

// line reads one line of the chunked coding.
func (b *body) line() error {
	if b.state == chunkTrailer {
		return b.readTrailer()
	}
	i := bytes.IndexByte(b.in.Bytes(), '\n')
	if i < 0 {
		if len(b.in.Bytes()) > maxChunkLine {
			return errChunk
		}
		return b.fill(wire.Size)
	}
	line := b.in.Bytes()[:i]
	if i == 0 || line[i-1] != '\r' || i > maxChunkLine {
		return errChunk
	}
	line = line[:i-1]
	if b.state == chunkEnd {
		if len(line) > 0 {
			return errChunk
		}
		b.state = chunkSize
		b.in.Take(i + 1)
		return nil
	}
	n, ok := size(line)
	if !ok {
		return errChunk
	}
	b.in.Take(i + 1)
	b.left, b.state = n, chunkData
	if n == 0 {
		b.state = chunkTrailer
	}
	return nil
}

// size reads a chunk's size. Extensions mean nothing to us and are not passed on
// (RFC 9112 §7.1.1).
func size(line []byte) (uint64, bool) {
	digits, ext, found := bytes.Cut(line, []byte(";"))
	if found {
		digits = bytes.TrimRight(digits, " \t")
		for _, c := range ext {
			if c < ' ' && c != '\t' || c == 0x7f {
				return 0, false
			}
		}
	}
	if len(digits) == 0 || len(digits) > 15 {
		return 0, false
	}
	n := uint64(0)
	for _, c := range digits {
		switch {
		case '0' <= c && c <= '9':
			c -= '0'
		case 'a' <= c && c <= 'f':
			c -= 'a' - 10
		case 'A' <= c && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, false
		}
		n = n<<4 | uint64(c)
	}
	return n, true
}

// readTrailer reads what is behind the last chunk.
func (b *body) readTrailer() error {
	p := b.in.Bytes()
	if len(p) >= 2 && p[0] == '\r' && p[1] == '\n' {
		b.in.Take(2)
		return io.EOF
	}
	n := headEnd(p, b.looked)
	if n == 0 {
		if b.looked = len(p); len(p) >= b.most {
			return errTooLarge
		}
		return b.fill(b.most)
	}
	fields, err := parseFields(nil, string(p[:n]), true)
	if err != nil {
		return err
	}
	b.in.Take(n)
	fields.DelFunc(notTrailer)
	b.trailer = fields
	return io.EOF
}

// notTrailer names the fields that must not come behind a body: whoever merges
// them with the head would change the message's meaning (RFC 9110 §6.5.1).
func notTrailer(name string) bool {
	switch {
	case framed(name), message.Is(name, "host"), message.Is(name, "connection"), message.Is(name, "te"), message.Is(name, "trailer"),
		message.Is(name, "authorization"), message.Is(name, "content-type"), message.Is(name, "content-encoding"), message.Is(name, "content-range"):
		return true
	}
	return false
}
