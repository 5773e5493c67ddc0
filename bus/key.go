package bus

import (
	"strings"
	"unicode/utf8"
)

// Key joins parts into the key of a row. Parts may hold any bytes: "/" and "%"
// are escaped, so no two lists of parts make one key, and a key is readable in
// a log. Key() of one empty part is "%", so that it differs from no parts.
func Key(parts ...string) string {
	if len(parts) == 1 {
		if parts[0] == "" {
			return emptyPart
		}
		return escape(parts[0])
	}
	n := len(parts)
	for _, p := range parts {
		n += len(p)
	}
	var b strings.Builder
	b.Grow(n)
	for i, p := range parts {
		if i > 0 {
			b.WriteByte('/')
		}
		b.WriteString(escape(p))
	}
	return b.String()
}

// Parts splits a key into what it was made of. It is the inverse of Key for
// every key that Key made, and never panics on others.
func Parts(key string) []string {
	switch key {
	case "":
		return nil
	case emptyPart:
		return []string{""}
	}
	parts := strings.Split(key, "/")
	for i, p := range parts {
		parts[i] = unescape(p)
	}
	return parts
}

// A bare "%" can't come out of escape, which follows every "%" by two digits.
const emptyPart = "%"

const hexDigits = "0123456789ABCDEF"

// escape keeps a part free of "/" and "%" and makes it UTF-8, which the
// messages of the bus require of a key.
func escape(p string) string {
	if !strings.ContainsAny(p, "%/") && utf8.ValidString(p) {
		return p
	}
	var b strings.Builder
	b.Grow(len(p) + 8)
	for i := 0; i < len(p); {
		r, n := utf8.DecodeRuneInString(p[i:])
		if r == '%' || r == '/' || (r == utf8.RuneError && n == 1) {
			b.WriteByte('%')
			b.WriteByte(hexDigits[p[i]>>4])
			b.WriteByte(hexDigits[p[i]&15])
		} else {
			b.WriteString(p[i : i+n])
		}
		i += n
	}
	return b.String()
}

func unescape(p string) string {
	if strings.IndexByte(p, '%') < 0 {
		return p
	}
	b := make([]byte, 0, len(p))
	for i := 0; i < len(p); i++ {
		if p[i] == '%' && i+2 < len(p) {
			hi, lo := strings.IndexByte(hexDigits, p[i+1]), strings.IndexByte(hexDigits, p[i+2])
			if hi >= 0 && lo >= 0 {
				b = append(b, byte(hi<<4|lo))
				i += 2
				continue
			}
		}
		b = append(b, p[i])
	}
	return string(b)
}
