package resolve

import (
	"fmt"
	"strings"

	"github.com/weftmesh/weft/proxy/internal/message"
)

// What HTTP cannot carry makes a policy invalid, as in Linkerd: leaving a change out
// could let through what it was to stop, and sending it could end a line early, or have
// each peer of HTTP/2 refuse each request.

// check judges what is added, set and removed.
func (m *Modify) check() error {
	m.Add, m.Set = unframed(m.Add), unframed(m.Set)
	for _, all := range [][]Header{m.Add, m.Set} {
		for i := range all {
			f := &all[i]
			f.Value = strings.Trim(f.Value, " \t") // no part of a value (RFC 9110 §5.5)
			switch {
			case !isToken(f.Name):
				return fmt.Errorf("%q is no name of a header", f.Name)
			case !message.ValidValue(f.Value), message.Is(f.Name, "host") && !message.ValidAuthority(f.Value):
				return fmt.Errorf("%q is no value of the header %s", f.Value, f.Name)
			}
		}
	}
	for _, name := range m.Remove {
		if !isToken(name) {
			return fmt.Errorf("%q is no name of a header", name)
		}
	}
	return nil
}

// unframed leaves out what says where a body ends: who sends the body says it.
func unframed(all []Header) []Header {
	var out []Header
	for _, f := range all {
		if !message.Is(f.Name, "content-length") && !message.Is(f.Name, "transfer-encoding") {
			out = append(out, f)
		}
	}
	return out
}

func (d *Redirect) check() error {
	switch {
	case !message.ValidAuthority(d.Host):
		return fmt.Errorf("a redirect to the host %q", d.Host)
	case d.Port < 0 || d.Port > 65535:
		return fmt.Errorf("a redirect to port %d", d.Port)
	case !isPath(d.Full), d.Prefix != nil && !isPath(*d.Prefix):
		return fmt.Errorf("a redirect to a path that is none")
	}
	return nil
}

func (w *Rewrite) check() error {
	switch {
	case !message.ValidAuthority(w.Host):
		return fmt.Errorf("requests are to say that they go to the host %q", w.Host)
	case !isPath(w.Full), w.Prefix != nil && !isPath(*w.Prefix):
		return fmt.Errorf("requests are to ask for a path that is none")
	}
	return nil
}

// isToken is RFC 9110 §5.6.2: names of headers and methods.
func isToken(s string) bool {
	for i := range len(s) {
		if c := s[i]; !isLetter(c) && !isDigit(c) && strings.IndexByte("!#$%&'*+-.^_`|~", c) < 0 {
			return false
		}
	}
	return s != ""
}

// isScheme is RFC 3986 §3.1.
func isScheme(s string) bool {
	for i := range len(s) {
		if c := s[i]; !isLetter(c) && (i == 0 || !isDigit(c) && c != '+' && c != '-' && c != '.') {
			return false
		}
	}
	return s != ""
}

// isPath reports whether s may be a path or the beginning of one, perhaps with a query.
func isPath(s string) bool {
	return strings.IndexFunc(s, func(r rune) bool { return r <= ' ' || r == 0x7f || r == '#' }) < 0
}

func isLetter(c byte) bool { return 'a' <= c|0x20 && c|0x20 <= 'z' }
func isDigit(c byte) bool  { return '0' <= c && c <= '9' }
