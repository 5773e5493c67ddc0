// Package origproto carries an HTTP/1 message's version and form over HTTP/2, in
// the header l5d-orig-proto (spec/proxy.md §8.1). Applications never see it: who
// adds it is a proxy, and the proxy at the other end takes it off.
package origproto

import "strings"

// Name is the header's name, in Go's canonical spelling.
const Name = "L5d-Orig-Proto"

const (
	http10   = "HTTP/1.0"
	http11   = "HTTP/1.1"
	absolute = "; absolute-form"
)

// A Proto is what HTTP/2 cannot say of an HTTP/1 message.
type Proto struct {
	Minor    int  // 0 or 1, of HTTP/1
	Absolute bool // the request's target was a whole URI
}

// String is the header's value.
func (p Proto) String() string {
	switch {
	case p.Minor == 0 && p.Absolute:
		return http10 + absolute
	case p.Minor == 0:
		return http10
	case p.Absolute:
		return http11 + absolute
	}
	return http11
}

// Parse reads a value by its prefix; what follows a known version and is not
// known itself is ignored, as Linkerd does.
func Parse(value string) (Proto, bool) {
	var p Proto
	rest, ok := strings.CutPrefix(value, http11)
	if ok {
		p.Minor = 1
	} else if rest, ok = strings.CutPrefix(value, http10); !ok {
		return Proto{}, false
	}
	p.Absolute = strings.HasPrefix(rest, absolute)
	return p, true
}

// header is message.Fields or an http.Header.
type header interface {
	Get(name string) string
	Set(name, value string)
	Del(name string)
}

// Take removes the header and returns what it said. An unknown value is removed
// too and reported as absent.
func Take(h header) (Proto, bool) {
	value := h.Get(Name)
	h.Del(Name)
	return Parse(value)
}

// Set writes the header, replacing one that a client may have sent.
func Set(h header, p Proto) { h.Set(Name, p.String()) }
