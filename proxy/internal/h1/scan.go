// Package h1 is HTTP/1 (RFC 9112) for a proxy: heads are scanned strictly and
// written anew with the fields in their order and their names as they were;
// bodies pass piece by piece in the buffers that they were read into.
//
// What two readers could read differently is refused, for that is how requests
// are smuggled (RFC 9112 §11.2). A connection holds no buffer while it is idle.
package h1

import (
	"bytes"
	"errors"
	"strings"

	"github.com/weftmesh/weft/proxy/internal/message"
)

// What is wrong with a head.
var (
	errLine     = errors.New("the first line is none of HTTP/1")
	errVersion  = errors.New("the version is neither HTTP/1.1 nor HTTP/1.0")
	errTarget   = errors.New("the request's target is none")
	errEnding   = errors.New("a line does not end with CR LF")
	errField    = errors.New("a field's name is none")
	errFold     = errors.New("a field is folded over two lines")
	errValue    = errors.New("a field's value has a control character")
	errHost     = errors.New("the request has no host, more than one, or one that is none")
	errLength   = errors.New("content-length is no number, or two")
	errFraming  = errors.New("both content-length and transfer-encoding")
	errContent  = errors.New("a CONNECT with a body: what follows it is the tunnel's")
	errCoding   = errors.New("a transfer-encoding other than chunked")
	errStatus   = errors.New("the status is none")
	errTooLarge = errors.New("the head is too large")
	errTooMany  = errors.New("the head has too many fields")
)

// maxFields bounds the lines of a head.
const maxFields = 4000

// headEnd returns the length of a head, its last line end included, or 0 if it is
// not whole. from is how much has been looked at already.
func headEnd(b []byte, from int) int {
	for i := max(0, from-3); ; {
		n := bytes.IndexByte(b[i:], '\n')
		if n < 0 {
			return 0
		}
		i += n + 1
		switch {
		case i < len(b) && b[i] == '\n':
			return i + 1
		case i+1 < len(b) && b[i] == '\r' && b[i+1] == '\n':
			return i + 2
		}
	}
}

// cut takes the first line off, without its end. strict demands CR LF.
func cut(s string, strict bool) (line, rest string, err error) {
	end := strings.IndexByte(s, '\n')
	if end < 0 {
		return "", "", errEnding
	}
	line, rest = s[:end], s[end+1:]
	if end > 0 && s[end-1] == '\r' {
		line = s[:end-1]
	} else if strict {
		return "", "", errEnding
	}
	return line, rest, nil
}

// parseFields appends lines up to the empty one.
func parseFields(fields message.Fields, s string, strict bool) (message.Fields, error) {
	for {
		if name, v, rest, ok := plain(s); ok && len(fields) < maxFields {
			fields = append(fields, message.Field{Name: name, Value: v, Sound: true})
			s = rest
			continue
		}
		line, rest, err := cut(s, strict)
		if err != nil {
			return nil, err
		}
		if line == "" {
			return fields, nil
		}
		s = rest
		if line[0] == ' ' || line[0] == '\t' {
			return nil, errFold
		}
		name, v, found := strings.Cut(line, ":")
		v = trim(v)
		switch {
		case !message.ValidValue(v):
			return nil, errValue
		case !found, !message.Token(name):
			if strict || !found {
				return nil, errField
			}
			if n := strings.TrimRight(name, " \t"); message.Is(n, "content-length") || message.Is(n, "transfer-encoding") {
				return nil, errField
			}
			continue
		case len(fields) >= maxFields:
			return nil, errTooMany
		}
		fields = append(fields, message.Field{Name: name, Value: v, Sound: true})
	}
}

// plain reads a line that is a name, a colon, a value and CR LF, as most are, in one
// pass.
func plain(s string) (name, v, rest string, ok bool) {
	colon := 0
	for colon < len(s) && message.TokenByte(s[colon]) {
		colon++
	}
	if colon == 0 || colon == len(s) || s[colon] != ':' {
		return "", "", "", false
	}
	name, s = s[:colon], s[colon+1:]
	end := strings.IndexByte(s, '\n')
	if end < 1 || s[end-1] != '\r' {
		return "", "", "", false
	}
	v = trim(s[:end-1])
	return name, v, s[end+1:], message.ValidValue(v)
}

// number reads digits and nothing else.
func number(s string) (int64, bool) {
	if s == "" || len(s) > 18 {
		return 0, false
	}
	n := int64(0)
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return 0, false
		}
		n = 10*n + int64(s[i]-'0')
	}
	return n, true
}

// trim removes the white space around a field's value (RFC 9110 §5.6.3).
func trim(s string) string {
	for s != "" && (s[0] == ' ' || s[0] == '\t') {
		s = s[1:]
	}
	for s != "" && (s[len(s)-1] == ' ' || s[len(s)-1] == '\t') {
		s = s[:len(s)-1]
	}
	return s
}
