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
	"strconv"
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

// framing is how the body's end is found.
type framing uint8

const (
	none    framing = iota
	sized           // by a length
	chunked         // by itself
	toEnd           // by the connection's end
)

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

// parseRequest reads a whole head into r; its fields go to the memory of fields.
func parseRequest(r *message.Request, fields message.Fields, head string) (framing, error) {
	*r = message.Request{}
	line, rest, err := cut(head, true)
	if err != nil {
		return none, err
	}
	if err := requestLine(r, line); err != nil {
		return none, err
	}
	if r.Fields, err = parseFields(fields, rest, true); err != nil {
		return none, err
	}
	if err := host(r); err != nil {
		return none, err
	}
	f, length, err := frame(&r.Fields, true)
	switch {
	case err != nil:
		return none, err
	case f == chunked && r.Version == message.HTTP10:
		return none, errCoding
	case r.Method == "CONNECT" && f != none:
		return none, errContent
	}
	r.Length = length
	return f, nil
}

func requestLine(r *message.Request, line string) error {
	method, line, ok := strings.Cut(line, " ")
	target, version, ok2 := strings.Cut(line, " ")
	if !ok || !ok2 || !token(method) || method == "PRI" {
		return errLine
	}
	switch version {
	case "HTTP/1.1":
		r.Version = message.HTTP11
	case "HTTP/1.0":
		r.Version = message.HTTP10
	default:
		return errVersion
	}
	r.Method = method
	if target == "" {
		return errTarget
	}
	if !message.ValidValue(target) || strings.IndexByte(target, '\t') >= 0 || strings.IndexByte(target, '#') >= 0 {
		return errTarget // it has no space, which would have ended it
	}
	switch {
	case method == "CONNECT":
		if r.Version == message.HTTP10 || !message.ValidTarget(target) {
			return errTarget
		}
		r.Authority = target
	case target[0] == '/', target == "*" && method == "OPTIONS":
		r.Target = target
	default:
		return absolute(r, target)
	}
	return nil
}

// absolute reads a target that is a whole URI.
func absolute(r *message.Request, target string) error {
	scheme, rest, ok := strings.Cut(target, "://")
	if !ok || !schemeName(scheme) {
		return errTarget
	}
	r.Scheme, r.Absolute = strings.ToLower(scheme), true
	i := 0
	for i < len(rest) && rest[i] != '/' && rest[i] != '?' {
		i++
	}
	r.Authority, r.Target = rest[:i], rest[i:]
	switch {
	case r.Target == "" && r.Method == "OPTIONS":
		r.Target = "*" // RFC 9112 §3.2.4
	case r.Target == "" || r.Target[0] == '?':
		r.Target = "/" + r.Target
	}
	if r.Authority == "" || !message.ValidAuthority(r.Authority) {
		return errTarget
	}
	return nil
}

// schemeName is RFC 3986 §3.1.
func schemeName(s string) bool {
	for i := range len(s) {
		switch c := s[i] | 0x20; {
		case 'a' <= c && c <= 'z':
		case i > 0 && ('0' <= s[i] && s[i] <= '9' || s[i] == '+' || s[i] == '-' || s[i] == '.'):
		default:
			return false
		}
	}
	return s != ""
}

// host checks the Host field and makes it the authority where there is no other.
func host(r *message.Request) error {
	n := 0
	for i := range r.Fields {
		if !message.Is(r.Fields[i].Name, "host") {
			continue
		}
		// One that is the target's authority has been looked at.
		if v := r.Fields[i].Value; n > 0 || (v == "" || v != r.Authority) && !message.ValidAuthority(v) {
			return errHost
		}
		n++
		if r.Authority == "" {
			r.Authority = r.Fields[i].Value
		}
	}
	if n == 0 && r.Version == message.HTTP11 {
		return errHost
	}
	return nil
}

// parseResponse reads a whole head of an answer into r. It is kinder than to
// requests, where nothing can be smuggled by it: a field whose name is none is left
// out.
func parseResponse(r *message.Response, fields message.Fields, head string, method string) (framing, error) {
	*r = message.Response{}
	line, rest, err := cut(head, false)
	if err != nil {
		return none, err
	}
	version, line, _ := strings.Cut(line, " ")
	switch version {
	case "HTTP/1.1":
		r.Version = message.HTTP11
	case "HTTP/1.0":
		r.Version = message.HTTP10
	default:
		return none, errVersion
	}
	code, reason, _ := strings.Cut(line, " ")
	if len(code) != 3 {
		return none, errStatus
	}
	for i := range 3 {
		if code[i] < '0' || code[i] > '9' {
			return none, errStatus
		}
		r.Status = 10*r.Status + int(code[i]-'0')
	}
	if r.Status < 100 || !message.ValidValue(reason) {
		return none, errStatus
	}
	r.Reason = reason
	if r.Fields, err = parseFields(fields, rest, false); err != nil {
		return none, err
	}
	if message.Bodyless(method, r.Status) {
		// What the head says is about another answer; the coding is this hop's.
		r.Fields.Del("transfer-encoding")
		if r.Status/100 == 1 || r.Status == 204 {
			r.Fields.Del("content-length")
		}
		return none, nil
	}
	f, length, err := frame(&r.Fields, false)
	if err != nil {
		return none, err
	}
	if f == none {
		if _, sizedNone := r.Fields.Find("content-length"); !sizedNone {
			f, length = toEnd, message.Unknown
		}
	}
	r.Length = length
	return f, nil
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
		case !found, !token(name):
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
	for colon < len(s) && tchar[s[colon]] {
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

// frame finds out how the body ends, and takes the coding off: it is this hop's.
// Of lengths that agree one stays.
func frame(fields *message.Fields, request bool) (framing, int64, error) {
	length, lengths, codings := int64(0), 0, 0
	for i := range *fields {
		f := &(*fields)[i]
		switch len(f.Name) {
		case 14:
			if !message.Is(f.Name, "content-length") {
				continue
			}
			n, ok := number(f.Value)
			if !ok || lengths > 0 && n != length {
				return none, 0, errLength
			}
			length = n
			lengths++
		case 17:
			if !message.Is(f.Name, "transfer-encoding") {
				continue
			}
			if codings++; codings > 1 || !message.Is(f.Value, "chunked") {
				return none, 0, errCoding
			}
		}
	}
	if lengths > 1 {
		fields.Set("content-length", strconv.FormatInt(length, 10))
	}
	switch {
	case codings > 0 && lengths > 0 && request:
		return none, 0, errFraming
	case codings > 0:
		fields.DelFunc(framed)
		return chunked, message.Unknown, nil
	case length > 0:
		return sized, length, nil
	}
	return none, 0, nil
}

// framed reports whether a field says how long a body is.
func framed(name string) bool {
	return message.Is(name, "content-length") || message.Is(name, "transfer-encoding")
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

func token(s string) bool {
	for i := range len(s) {
		if !tchar[s[i]] {
			return false
		}
	}
	return s != ""
}

// tchar is RFC 9110 §5.6.2.
var tchar = func() (t [256]bool) {
	for c := range 256 {
		t[c] = c > ' ' && c < 0x7f && strings.IndexByte("\"(),/:;<=>?@[\\]{}", byte(c)) < 0
	}
	return t
}()

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
