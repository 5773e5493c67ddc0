package message

// ValidValue reports whether s may be a field's value (RFC 9110 §5.5), white space
// around it aside. Eight bytes are looked at together: it is asked of every field.
func ValidValue(s string) bool {
	for i := 0; i < len(s); {
		if len(s)-i >= 8 && printable(s[i:i+8]) {
			i += 8
			continue
		}
		if c := s[i]; c < ' ' && c != '\t' || c == 0x7f {
			return false
		}
		i++
	}
	return true
}

// printable reports whether 8 bytes at once are neither below a space nor DEL.
func printable(s string) bool {
	const ones, tops = 0x0101010101010101, 0x8080808080808080
	x := uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 |
		uint64(s[4])<<32 | uint64(s[5])<<40 | uint64(s[6])<<48 | uint64(s[7])<<56
	del := x ^ 0x7f*ones
	return ((x-' '*ones)&^x|(del-ones)&^del)&tops == 0
}
