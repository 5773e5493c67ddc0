package hpack

import "math/bits"

// quick is a hash that finds a place for a string: of its length, its beginning and
// its end. Whoever makes strings of the same one gets them encoded less well, and
// that on his own connection. Letters of a name have no case.
func quick(s string) uint64     { return mixed(s, 0) }
func quickName(s string) uint64 { return mixed(s, 0x2020202020202020) }

func mixed(s string, ignore uint64) uint64 {
	var first, last uint64
	switch n := len(s); {
	case n >= 8:
		first, last = word(s[:8]), word(s[n-8:])
	case n >= 4:
		first, last = uint64(half(s[:4])), uint64(half(s[n-4:]))
	case n > 0:
		first = uint64(s[0]) | uint64(s[n/2])<<8 | uint64(s[n-1])<<16
	}
	h := ((first | ignore) ^ uint64(len(s))) * 0x9e3779b97f4a7c15
	h = (h ^ bits.RotateLeft64(last|ignore, 29)) * 0xbf58476d1ce4e5b9
	return h ^ h>>32
}

// word and half are what encoding/binary does, of strings.
func word(s string) uint64 {
	_ = s[7]
	return uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 |
		uint64(s[4])<<32 | uint64(s[5])<<40 | uint64(s[6])<<48 | uint64(s[7])<<56
}

func half(s string) uint32 {
	_ = s[3]
	return uint32(s[0]) | uint32(s[1])<<8 | uint32(s[2])<<16 | uint32(s[3])<<24
}
