package message

import "strings"

// ValidAuthority reports whether s may be a host with or without a port (RFC 3986
// §3.2.2; underscores and the like are left to whoever looks the name up). Nothing at
// all is a host that is not named.
func ValidAuthority(s string) bool {
	_, ok := port(s)
	return ok
}

// ValidTarget reports whether s may be what a CONNECT asks for: a host and a port.
func ValidTarget(s string) bool {
	p, ok := port(s)
	return ok && p != ""
}

// port is the port of an authority, and whether the authority is one.
func port(s string) (string, bool) {
	if s == "" {
		return "", true
	}
	end := 0
	if s[0] == '[' {
		if end = strings.IndexByte(s, ']') + 1; end < 4 || !literal(s[1:end-1]) {
			return "", false
		}
	} else {
		for end < len(s) && s[end] != ':' {
			if !nameChar[s[end]] || s[end] == '%' && !escape(s[end:]) {
				return "", false
			}
			end++
		}
	}
	if end == len(s) {
		return "", true
	}
	if end == 0 || s[end] != ':' {
		return "", false
	}
	digits, n := s[end+1:], 0
	for i := range len(digits) {
		if digits[i] < '0' || digits[i] > '9' {
			return "", false
		}
		if n = 10*n + int(digits[i]-'0'); n > 65535 {
			return "", false
		}
	}
	return digits, true
}

// literal reports whether s may stand between brackets: an IPv6 address, perhaps with
// a zone, or one of the future.
func literal(s string) bool {
	if s[0] == 'v' || s[0] == 'V' {
		for i := range len(s) {
			if c := s[i]; c == '%' || c != ':' && !nameChar[c] {
				return false
			}
		}
		return true
	}
	address, zone, zoned := strings.Cut(s, "%")
	for i := range len(zone) {
		if c := zone[i]; c == '%' || !nameChar[c] {
			return false
		}
	}
	for i := range len(address) {
		if c := address[i]; !hex(c) && c != ':' && c != '.' {
			return false
		}
	}
	return strings.IndexByte(address, ':') >= 0 && (!zoned || zone != "")
}

// escape reports whether s begins with a byte that is percent-encoded.
func escape(s string) bool { return len(s) > 2 && hex(s[1]) && hex(s[2]) }

func hex(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F'
}

// nameChar is what a name in an authority consists of: what is visible in ASCII and
// has no meaning elsewhere in a URI, nor for readers that take lists or scripts.
var nameChar = func() (t [256]bool) {
	for c := range 256 {
		t[c] = c > ' ' && c < 0x7f && strings.IndexByte("@/,?#\\\"<>^`{|}[]:", byte(c)) < 0
	}
	return t
}()
