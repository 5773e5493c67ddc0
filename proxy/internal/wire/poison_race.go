//go:build race

package wire

import "bytes"

// poisoned is whether released memory is overwritten, to find who still uses it.
const poisoned = true

// poison is what they are overwritten with.
var poison = [4 << 10]byte(bytes.Repeat([]byte{0xdd}, 4<<10))
