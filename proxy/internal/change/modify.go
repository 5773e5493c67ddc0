package change

import (
	"fmt"
	"strings"

	typespb "github.com/linkerd/linkerd2-proxy-api/go/http_types"

	"github.com/weftmesh/weft/proxy/internal/message"
)

// Modify changes headers: Add, then Set, then Remove.
type Modify struct {
	Add, Set []Header
	Remove   []string
}

// A Header is one field.
type Header struct{ Name, Value string }

// Modifier is the message for either direction.
type Modifier interface {
	GetAdd() *typespb.Headers
	GetSet() *typespb.Headers
	GetRemove() []string
}

// ModifyOf reads a message.
func ModifyOf(m Modifier) (*Modify, error) {
	out := &Modify{Add: headers(m.GetAdd()), Set: headers(m.GetSet()), Remove: m.GetRemove()}
	return out, out.Fit()
}

func headers(h *typespb.Headers) []Header {
	var out []Header
	for _, f := range h.GetHeaders() {
		out = append(out, Header{f.GetName(), string(f.GetValue())})
	}
	return out
}

// Fit makes m what HTTP can carry: values lose the white space around them, and headers
// that frame a body are left out. It fails where that is not enough.
func (m *Modify) Fit() error {
	m.Add, m.Set = unframed(m.Add), unframed(m.Set)
	for _, all := range [][]Header{m.Add, m.Set} {
		for i := range all {
			f := &all[i]
			f.Value = strings.Trim(f.Value, " \t") // no part of a value (RFC 9110 §5.5)
			switch {
			case !message.Token(f.Name):
				return fmt.Errorf("%q is no name of a header", f.Name)
			case !message.ValidValue(f.Value), message.Is(f.Name, "host") && !message.ValidAuthority(f.Value):
				return fmt.Errorf("%q is no value of the header %s", f.Value, f.Name)
			}
		}
	}
	for _, name := range m.Remove {
		if !message.Token(name) {
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

// Apply changes h.
func (m *Modify) Apply(h *message.Fields) {
	for _, f := range m.Add {
		h.Add(f.Name, f.Value)
	}
	for _, f := range m.Set {
		h.Set(f.Name, f.Value)
	}
	for _, name := range m.Remove {
		h.Del(name)
	}
}
