//go:build !race

package outbound

const raced = false
