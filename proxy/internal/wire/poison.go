//go:build !race

package wire

// poisoned is whether released memory is overwritten, to find who still uses it.
const poisoned = false

var poison [1]byte
