//go:build race

package outbound

// raced is whether the race detector watches, which makes pools forget.
const raced = true
