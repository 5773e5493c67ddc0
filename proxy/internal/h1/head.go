package h1

import (
	"strconv"
	"strings"

	"github.com/weftmesh/weft/proxy/internal/message"
)

// framing is how the body's end is found.
type framing uint8

const (
	none    framing = iota
	sized           // by a length
	chunked         // by itself
	toEnd           // by the connection's end
)

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
	if !ok || !ok2 || !message.Token(method) || method == "PRI" {
		return errLine
	}
	var err error
	if r.Version, err = parseVersion(version); err != nil {
		return err
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
	if !ok || !message.SchemeName(scheme) {
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

func parseVersion(s string) (message.Version, error) {
	switch s {
	case "HTTP/1.1":
		return message.HTTP11, nil
	case "HTTP/1.0":
		return message.HTTP10, nil
	}
	return message.HTTP11, errVersion
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
	if r.Version, err = parseVersion(version); err != nil {
		return none, err
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
