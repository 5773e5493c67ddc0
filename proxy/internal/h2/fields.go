package h2

import (
	"errors"
	"strings"

	"github.com/weftmesh/weft/proxy/internal/message"
)

// What makes a message malformed (RFC 9113 §8.1.1).
var (
	errName       = errors.New("a field's name that is none, or not in lower case")
	errValue      = errors.New("a field's value with bytes that none has")
	errConnection = errors.New("a field that is about an HTTP/1 connection")
	errPseudo     = errors.New("a pseudo-header field that is unknown, twice there or behind others")
	errMissing    = errors.New("a pseudo-header field is missing or empty")
	errConnect    = errors.New("CONNECT with more than an authority")
	errHost       = errors.New("more than one host")
	errAuthority  = errors.New("an authority that is none")
)

// readRequest takes the pseudo-header fields out of a request's fields.
func readRequest(r *message.Request, fields message.Fields) error {
	*r = message.Request{Version: message.HTTP2}
	n, err := pseudo(fields, func(name string) *string {
		switch name {
		case ":method":
			return &r.Method
		case ":scheme":
			return &r.Scheme
		case ":authority":
			return &r.Authority
		case ":path":
			return &r.Target
		}
		return nil
	})
	if err != nil {
		return err
	}
	r.Fields = join(fields[n:])
	if r.Method == "CONNECT" {
		if r.Authority == "" || r.Scheme != "" || r.Target != "" {
			return errConnect
		}
		if !message.ValidAuthority(r.Authority) {
			return errAuthority
		}
		return nil
	}
	switch {
	case r.Method == "" || r.Scheme == "" || r.Target == "":
		return errMissing
	case !message.Token(r.Method):
		return errName
	case r.Target[0] != '/' && (r.Target != "*" || r.Method != "OPTIONS"):
		return errMissing
	case !visible(r.Target), !message.Token(r.Scheme):
		return errValue
	}
	if r.Authority == "" {
		r.Authority = r.Fields.Get("host")
	}
	// These become lines of HTTP/1 if that is what the application speaks: what is
	// a line's end there, or a path, would be another request than was judged.
	if !message.ValidAuthority(r.Authority) {
		return errAuthority
	}
	if r.Fields.Count("host") > 1 {
		return errHost
	}
	return nil
}

// readResponse is the same for a response.
func readResponse(r *message.Response, fields message.Fields) error {
	*r = message.Response{}
	n, err := pseudo(fields, func(name string) *string {
		if name == ":status" {
			return &r.Reason // which HTTP/2 has none of
		}
		return nil
	})
	if err != nil {
		return err
	}
	status := r.Reason
	*r = message.Response{Version: message.HTTP2, Fields: fields[n:]}
	if len(status) != 3 {
		return errMissing
	}
	for i := range 3 {
		if status[i] < '0' || status[i] > '9' {
			return errMissing
		}
		r.Status = 10*r.Status + int(status[i]-'0')
	}
	if r.Status < 100 || r.Status == 101 { // HTTP/2 switches no protocols (§8.6)
		return errMissing
	}
	return nil
}

// pseudo stores the pseudo-header fields where place says, and checks the rest. It
// returns how many there are.
func pseudo(fields message.Fields, place func(name string) *string) (int, error) {
	n := 0
	seen := 0
	for i := range fields {
		f := &fields[i]
		if !strings.HasPrefix(f.Name, ":") {
			if err := check(f); err != nil {
				return 0, err
			}
			continue
		}
		to := place(f.Name)
		if to == nil || i != n {
			return 0, errPseudo
		}
		bit := 1 << (f.Name[1] - 'a') // the names that are known begin with different letters
		if seen&bit != 0 {
			return 0, errPseudo
		}
		*to = f.Value
		seen |= bit
		n++
	}
	return n, nil
}

// check checks a field that is none of the pseudo ones.
func check(f *message.Field) error {
	if f.Name == "" {
		return errName
	}
	for i := range len(f.Name) {
		if kinds[f.Name[i]]&(tokens|uppers) != tokens {
			return errName
		}
	}
	if !ValidValue(f.Value) {
		return errValue
	}
	switch f.Name {
	case "connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade":
		return errConnection
	case "te":
		if f.Value != "trailers" {
			return errConnection
		}
	}
	return nil
}

// ValidValue reports whether HTTP/2 carries such a value (RFC 9113 §8.2.1).
func ValidValue(v string) bool {
	if !message.ValidValue(v) {
		return false
	}
	return v == "" || v[0] != ' ' && v[0] != '\t' && v[len(v)-1] != ' ' && v[len(v)-1] != '\t'
}

// hop reports whether a field concerns an HTTP/1 connection only and must not go
// out over HTTP/2 (RFC 9113 §8.2.2).
func hop(name string) bool {
	return message.HopByHop(name) || message.Is(name, "transfer-encoding")
}

func visible(s string) bool { return all(s, targets) } // a path and a query

func all(s string, kind uint8) bool {
	for i := range len(s) {
		if kinds[s[i]]&kind == 0 {
			return false
		}
	}
	return true
}

// What a byte may be part of.
const (
	tokens  = 1 << iota // RFC 9110 §5.6.2
	uppers              // letters that HTTP/2 has in no name
	targets             // paths and queries, as far as is looked at
)

var kinds = func() (k [256]uint8) {
	for i := range 256 {
		c := byte(i)
		switch {
		case 'A' <= c && c <= 'Z':
			k[c] |= tokens | uppers
		case 'a' <= c && c <= 'z', '0' <= c && c <= '9', strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0:
			k[c] |= tokens
		}
		if c > ' ' && c != 0x7f && c != '#' {
			k[c] |= targets
		}
	}
	return k
}()

// join makes one field of several cookies, which HTTP/2 may have split (§8.2.3).
func join(fields message.Fields) message.Fields {
	first, more := -1, false
	for i := range fields {
		if fields[i].Name == "cookie" {
			more = first >= 0
			if first < 0 {
				first = i
			}
			if more {
				break
			}
		}
	}
	if !more {
		return fields
	}
	all := strings.Join(fields.Values("cookie"), "; ")
	fields.Set("cookie", all)
	return fields
}
