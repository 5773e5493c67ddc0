package message

import "strings"

// A Field is one line of a head or trailer. Its name is as it was written: lower
// case from HTTP/2, anything from HTTP/1. Names are compared without case.
type Field struct {
	Name, Value string
	// Sensitive fields must never enter a compression table (RFC 7541 §7.1.3).
	Sensitive bool
	// Sound says that name and value have been found to be what RFC 9110 §5 allows when
	// they were read, and need not be looked at again when they are written.
	Sound bool
}

// Size is the field's size as RFC 9113 §6.5.2 counts it, in bytes.
func (f Field) Size() int { return len(f.Name) + len(f.Value) + 32 }

// Fields are the lines in the order in which they came. The zero value is empty.
type Fields []Field

// Is reports whether two names are the same; ASCII letters have no case. Most are
// told apart by their length, which costs no call.
func Is(a, b string) bool { return len(a) == len(b) && same(a, b) }

func same(a, b string) bool {
	for i := range len(a) {
		if a[i] != b[i] && lower(a[i]) != lower(b[i]) {
			return false
		}
	}
	return true
}

func lower(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		return c + ('a' - 'A')
	}
	return c
}

// Find returns the first value of a name.
func (f Fields) Find(name string) (string, bool) {
	for i := range f {
		if Is(f[i].Name, name) {
			return f[i].Value, true
		}
	}
	return "", false
}

// Get returns the first value of a name, "" if there is none.
func (f Fields) Get(name string) string {
	v, _ := f.Find(name)
	return v
}

// Has reports whether there is a line of that name.
func (f Fields) Has(name string) bool {
	_, ok := f.Find(name)
	return ok
}

// Values returns all values of a name.
func (f Fields) Values(name string) []string {
	var all []string
	for i := range f {
		if Is(f[i].Name, name) {
			all = append(all, f[i].Value)
		}
	}
	return all
}

// Count is the number of lines of a name.
func (f Fields) Count(name string) int {
	n := 0
	for i := range f {
		if Is(f[i].Name, name) {
			n++
		}
	}
	return n
}

// HasToken reports whether a list field contains a token; tokens have no case.
func (f Fields) HasToken(name, token string) bool {
	for i := range f {
		if !Is(f[i].Name, name) {
			continue
		}
		for t := range strings.SplitSeq(f[i].Value, ",") {
			if Is(strings.Trim(t, " \t"), token) {
				return true
			}
		}
	}
	return false
}

// Add appends a line.
func (f *Fields) Add(name, value string) { *f = append(*f, Field{Name: name, Value: value}) }

// Set makes a value the only one of its name. It takes the place of the first.
func (f *Fields) Set(name, value string) {
	for i := range *f {
		if Is((*f)[i].Name, name) {
			(*f)[i].Value, (*f)[i].Sound = value, false
			rest := (*f)[i+1:]
			rest.Del(name)
			*f = (*f)[:i+1+len(rest)]
			return
		}
	}
	f.Add(name, value)
}

// Del removes all lines of a name.
func (f *Fields) Del(name string) {
	for i := range *f {
		if Is((*f)[i].Name, name) {
			f.delFrom(i, func(n string) bool { return Is(n, name) })
			return
		}
	}
}

// DelFunc removes the lines whose name is named by drop. The order stays.
func (f *Fields) DelFunc(drop func(name string) bool) {
	for i := range *f {
		if drop((*f)[i].Name) {
			f.delFrom(i, drop)
			return
		}
	}
}

// delFrom removes line i, and those behind it that drop names.
func (f *Fields) delFrom(i int, drop func(name string) bool) {
	kept := (*f)[:i]
	for _, line := range (*f)[i+1:] {
		if !drop(line.Name) {
			kept = append(kept, line)
		}
	}
	clear((*f)[len(kept):])
	*f = kept
}

// DelListed removes the lines whose name is listed by a list field, but for the
// names that keep names. A client writes the list, as long as a head may be: so it
// is gone through once, not once for every line.
func (f *Fields) DelListed(list string, keep func(name string) bool) {
	var listed map[string]struct{}
	for i := range *f {
		if !Is((*f)[i].Name, list) {
			continue
		}
		for name := range strings.SplitSeq((*f)[i].Value, ",") {
			name = strings.Trim(name, " \t")
			if name == "" || keep(name) {
				continue
			}
			if listed == nil {
				listed = map[string]struct{}{}
			}
			listed[strings.ToLower(name)] = struct{}{}
		}
	}
	if listed == nil {
		return
	}
	f.DelFunc(func(name string) bool {
		_, ok := listed[strings.ToLower(name)]
		return ok
	})
}

// Clone returns fields of its own, with room for more.
func (f Fields) Clone(more int) Fields {
	if f == nil && more == 0 {
		return nil
	}
	return append(make(Fields, 0, len(f)+more), f...)
}

// HopByHop reports whether a field concerns one connection only, whatever the
// version (RFC 9110 §7.6.1).
func HopByHop(name string) bool {
	switch len(name) {
	case 7:
		return Is(name, "upgrade")
	case 10:
		return Is(name, "connection") || Is(name, "keep-alive")
	case 16:
		return Is(name, "proxy-connection")
	}
	return false
}

// DelHop removes the fields that hop names and those that Connection does.
func (f *Fields) DelHop(hop func(name string) bool) {
	f.DelOptions(hop)
	f.DelFunc(hop)
}

// DelOptions removes the fields that Connection names. What frames a message or names
// its host is not removed by naming it; what hop names stays for the caller.
func (f *Fields) DelOptions(hop func(name string) bool) {
	f.DelListed("connection", func(name string) bool {
		return hop(name) || Is(name, "close") || Is(name, "host") || Is(name, "content-length")
	})
}
