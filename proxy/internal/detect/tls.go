package detect

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"time"
)

// A Hello is what a TLS ClientHello says. The zero value means: not TLS, or a
// hello without a usable name.
type Hello struct {
	SNI string // lower case
}

const (
	tlsFirst = 512  // first read
	tlsMax   = 8192 // a hello with a post-quantum key share needs some 1.8 KiB
)

// TLS reads the ClientHello, if there is one. Whatever is not a complete hello
// with a name in its first record is plaintext to us (spec/proxy.md §10.2).
func TLS(ctx context.Context, conn net.Conn, timeout time.Duration) (Hello, net.Conn, error) {
	deadline := time.Now().Add(timeout)
	buf := make([]byte, 0, tlsFirst)
	for {
		n, err := readWithin(ctx, conn, buf[len(buf):cap(buf)], deadline)
		buf = buf[:len(buf)+n]
		hello, more := ParseHello(buf)
		switch {
		case len(buf) > 0 && !more:
			return hello, Replay(conn, buf), nil
		case errors.Is(err, os.ErrDeadlineExceeded):
			return Hello{}, conn, ErrTimeout
		case errors.Is(err, io.EOF) && len(buf) == 0:
			return Hello{}, conn, ErrClosed
		case errors.Is(err, io.EOF), len(buf) == tlsMax:
			return Hello{}, Replay(conn, buf), nil
		case err != nil:
			return Hello{}, conn, err
		}
		if len(buf) == cap(buf) {
			buf = append(make([]byte, 0, tlsMax), buf...)
		}
	}
}

// ParseHello reads the beginning of a connection. more is true while b could
// still become a ClientHello.
func ParseHello(b []byte) (hello Hello, more bool) {
	const (
		recordHeader = 5
		handshake    = 22
		clientHello  = 1
		helloHeader  = 4
	)
	// The record header, as far as it has come.
	for i, want := range [][]byte{{handshake}, {3}, {1, 3}} {
		if len(b) == i {
			return Hello{}, true
		}
		if !strings.Contains(string(want), string(b[i:i+1])) {
			return Hello{}, false
		}
	}
	if len(b) < recordHeader {
		return Hello{}, true
	}
	size := int(binary.BigEndian.Uint16(b[3:]))
	if size < helloHeader || recordHeader+size > tlsMax {
		return Hello{}, false
	}
	body := b[recordHeader:]
	if len(body) > 0 && body[0] != clientHello {
		return Hello{}, false
	}
	if len(body) < size {
		return Hello{}, true
	}
	body = body[:size]
	length := int(body[1])<<16 | int(body[2])<<8 | int(body[3])
	if helloHeader+length > size {
		return Hello{}, false // goes on in another record
	}
	return Hello{SNI: serverName(body[helloHeader : helloHeader+length])}, false
}

// serverName finds the host_name of a ClientHello's body, or "".
func serverName(b cursor) string {
	version, ok := b.take(2)
	if !ok || version[0] != 3 || version[1] != 3 {
		return ""
	}
	if _, ok = b.take(32); !ok { // random
		return ""
	}
	if _, ok = b.vector(1); !ok { // session id
		return ""
	}
	if _, ok = b.vector(2); !ok { // cipher suites
		return ""
	}
	if _, ok = b.vector(1); !ok { // compression
		return ""
	}
	exts, ok := b.vector(2)
	for ok && len(exts) > 0 {
		var kind, data cursor
		if kind, ok = exts.take(2); !ok {
			return ""
		}
		if data, ok = exts.vector(2); !ok {
			return ""
		}
		if kind[0] != 0 || kind[1] != 0 {
			continue
		}
		list, ok := data.vector(2)
		if !ok {
			return ""
		}
		for len(list) > 0 {
			kind, ok := list.take(1)
			if !ok {
				return ""
			}
			name, ok := list.vector(2)
			if !ok {
				return ""
			}
			if kind[0] == 0 {
				return hostName(string(name))
			}
		}
		return ""
	}
	return ""
}

// hostName returns a valid DNS name in lower case, or "".
func hostName(s string) string {
	s = strings.ToLower(s)
	if s == "" || len(s) > 253 || strings.HasSuffix(s, ".") {
		return ""
	}
	if _, err := netip.ParseAddr(s); err == nil {
		return ""
	}
	for label := range strings.SplitSeq(s, ".") {
		if label == "" || len(label) > 63 {
			return ""
		}
		for i := range len(label) {
			c := label[i]
			if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' && c != '_' {
				return ""
			}
		}
	}
	return s
}

// A cursor is what remains of a message.
type cursor []byte

func (c *cursor) take(n int) (cursor, bool) {
	if len(*c) < n {
		return nil, false
	}
	out := (*c)[:n]
	*c = (*c)[n:]
	return out, true
}

// vector takes a length of the given number of bytes, and then that many.
func (c *cursor) vector(bytes int) (cursor, bool) {
	size, ok := c.take(bytes)
	if !ok {
		return nil, false
	}
	n := 0
	for _, b := range size {
		n = n<<8 | int(b)
	}
	return c.take(n)
}
