// Package header speaks transport.l5d.io/v1: the few bytes a proxy writes first
// on a connection to a peer's inbound port, to say which port (and, through a
// gateway, which name) the rest is for. A reader never takes a byte beyond the
// header, so what follows can be read from the same connection.
package header

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"google.golang.org/protobuf/encoding/protowire"
)

// ALPN is what both sides must negotiate before a header may be written.
const ALPN = "transport.l5d.io/v1"

const (
	preface  = ALPN + "\r\n\r\n"
	sizeLen  = 4
	maxSize  = 64 << 10 // spec/proxy.md §11.1
	maxName  = 255      // a host name, with its dot
	maxPort  = 65535
	headSize = len(preface) + sizeLen
)

// Session says which protocol the connection carries, if the client knows.
type Session uint8

// The session protocols. None is opaque bytes.
const (
	None Session = iota
	HTTP1
	HTTP2
)

// String is the value of the session_protocol label.
func (s Session) String() string {
	switch s {
	case HTTP1:
		return "http/1"
	case HTTP2:
		return "http/2"
	}
	return ""
}

// Header is what a client asks of the peer's proxy.
type Header struct {
	Port    uint16
	Name    string // empty unless a gateway is asked
	Session Session
}

// ErrMissing means that the first bytes are not a transport header.
var ErrMissing = errors.New("no transport header")

// Write sends h in one call to w.
func Write(w io.Writer, h Header) error {
	if h.Port == 0 {
		return errors.New("writing a transport header: port 0")
	}
	if len(h.Name) > maxName {
		return fmt.Errorf("writing a transport header: name of %d bytes", len(h.Name))
	}
	b := make([]byte, headSize, headSize+len(h.Name)+16)
	copy(b, preface)
	b = appendMessage(b, h)
	binary.BigEndian.PutUint32(b[len(preface):], uint32(len(b)-headSize))
	if _, err := w.Write(b); err != nil {
		return fmt.Errorf("writing a transport header: %w", err)
	}
	return nil
}

// Read takes exactly one header from r.
func Read(r io.Reader) (Header, error) {
	var head [headSize]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return Header{}, fmt.Errorf("reading a transport header: %w", err)
	}
	if string(head[:len(preface)]) != preface {
		return Header{}, fmt.Errorf("reading a transport header: %w", ErrMissing)
	}
	size := binary.BigEndian.Uint32(head[len(preface):])
	if size > maxSize {
		return Header{}, fmt.Errorf("reading a transport header: %d bytes announced, at most %d taken", size, maxSize)
	}
	body := make([]byte, size)
	if _, err := io.ReadFull(r, body); err != nil {
		return Header{}, fmt.Errorf("reading a transport header: %w", err)
	}
	h, err := parseMessage(body)
	if err != nil {
		return Header{}, fmt.Errorf("reading a transport header: %w", err)
	}
	return h, nil
}

// The message is transport.l5d.io.Header (spec/proxy.md §8.2):
// int32 port = 1; string name = 2; SessionProtocol session_protocol = 3
// { oneof kind { Http1 http1 = 1; Http2 http2 = 2; } }.
const (
	fieldPort, fieldName, fieldSession = 1, 2, 3
	fieldHTTP1, fieldHTTP2             = 1, 2
)

func appendMessage(b []byte, h Header) []byte {
	b = protowire.AppendTag(b, fieldPort, protowire.VarintType)
	b = protowire.AppendVarint(b, uint64(h.Port))
	if h.Name != "" {
		b = protowire.AppendTag(b, fieldName, protowire.BytesType)
		b = protowire.AppendString(b, h.Name)
	}
	kind := protowire.Number(fieldHTTP1)
	switch h.Session {
	case HTTP2:
		kind = fieldHTTP2
	case HTTP1:
	default:
		return b
	}
	inner := protowire.AppendTag(nil, kind, protowire.BytesType)
	inner = protowire.AppendBytes(inner, nil)
	b = protowire.AppendTag(b, fieldSession, protowire.BytesType)
	return protowire.AppendBytes(b, inner)
}

func parseMessage(b []byte) (Header, error) {
	var h Header
	var port uint64
	err := fields(b, func(f field) error {
		switch {
		case f.num == fieldPort && f.typ == protowire.VarintType:
			port = f.varint
		case f.num == fieldName && f.typ == protowire.BytesType:
			h.Name = string(f.bytes)
		case f.num == fieldSession && f.typ == protowire.BytesType:
			return fields(f.bytes, func(f field) error {
				switch {
				case f.num == fieldHTTP1 && f.typ == protowire.BytesType:
					h.Session = HTTP1
				case f.num == fieldHTTP2 && f.typ == protowire.BytesType:
					h.Session = HTTP2
				}
				return nil
			})
		}
		return nil // of a newer peer
	})
	switch {
	case err != nil:
		return Header{}, err
	case port == 0 || port > maxPort:
		return Header{}, fmt.Errorf("port %d is out of range", int64(port))
	case len(h.Name) > maxName:
		return Header{}, fmt.Errorf("a name of %d bytes", len(h.Name))
	}
	h.Port = uint16(port)
	return h, nil
}

type field struct {
	num    protowire.Number
	typ    protowire.Type
	varint uint64
	bytes  []byte
}

// fields calls each for every field of a message.
func fields(b []byte, each func(field) error) error {
	for len(b) > 0 {
		var f field
		var n int
		if f.num, f.typ, n = protowire.ConsumeTag(b); n < 0 {
			return protowire.ParseError(n)
		}
		b = b[n:]
		switch f.typ {
		case protowire.VarintType:
			f.varint, n = protowire.ConsumeVarint(b)
		case protowire.BytesType:
			f.bytes, n = protowire.ConsumeBytes(b)
		default:
			n = protowire.ConsumeFieldValue(f.num, f.typ, b)
		}
		if n < 0 {
			return protowire.ParseError(n)
		}
		b = b[n:]
		if err := each(f); err != nil {
			return err
		}
	}
	return nil
}
