package detect

import (
	"bytes"

	"github.com/weftmesh/weft/proxy/internal/message"
)

// minHTTP is the least that decides: shorter first reads are opaque.
const minHTTP = 14

var preface = []byte("PRI * HTTP/2.0")

// classify follows Linkerd: the HTTP/2 preface, or something that is or may
// become an HTTP/1 request line.
func classify(b []byte) Kind {
	switch {
	case len(b) < minHTTP:
		return Opaque
	case bytes.HasPrefix(b, preface):
		return HTTP2
	case isRequestHead(b):
		return HTTP1
	}
	return Opaque
}

// isRequestHead reports whether b is a prefix of a request line, or begins with
// a whole one. Empty lines before it are allowed (RFC 9112 §2.2).
func isRequestHead(b []byte) bool {
	for len(b) > 0 && (b[0] == '\r' || b[0] == '\n') {
		if b[0] == '\r' {
			if len(b) > 1 && b[1] != '\n' {
				return false
			}
			b = b[1:]
		}
		if len(b) > 0 {
			b = b[1:]
		}
	}
	method, b := span(b, message.TokenByte)
	if method == 0 {
		return len(b) == 0
	}
	if len(b) == 0 {
		return true
	}
	if b[0] != ' ' {
		return false
	}
	target, b := span(b[1:], isTarget)
	if len(b) == 0 {
		return true
	}
	if target == 0 || b[0] != ' ' {
		return false
	}
	return isVersion(b[1:])
}

func isVersion(b []byte) bool {
	const v = "HTTP/1."
	n := min(len(b), len(v))
	if string(b[:n]) != v[:n] {
		return false
	}
	b = b[n:]
	if len(b) == 0 {
		return true
	}
	if b[0] != '0' && b[0] != '1' {
		return false
	}
	if b = b[1:]; len(b) == 0 || b[0] == '\n' {
		return true
	}
	return b[0] == '\r' && (len(b) == 1 || b[1] == '\n')
}

// span is the length of the run of bytes that are in, and what follows it.
func span(b []byte, in func(byte) bool) (int, []byte) {
	n := 0
	for n < len(b) && in(b[n]) {
		n++
	}
	return n, b[n:]
}

func isTarget(c byte) bool { return c > ' ' && c != 0x7f }
