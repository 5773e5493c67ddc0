package message

import "strings"

// Token reports whether s is a token (RFC 9110 §5.6.2): names of fields and methods are.
func Token(s string) bool {
	for i := range len(s) {
		if !TokenByte(s[i]) {
			return false
		}
	}
	return s != ""
}

// TokenByte reports whether a token may have c.
func TokenByte(c byte) bool { return tokens[c] }

var tokens = func() (t [256]bool) {
	for c := range 256 {
		t[c] = c > ' ' && c < 0x7f && strings.IndexByte("\"(),/:;<=>?@[\\]{}", byte(c)) < 0
	}
	return t
}()

// SchemeName reports whether s may be a scheme (RFC 3986 §3.1).
func SchemeName(s string) bool {
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
