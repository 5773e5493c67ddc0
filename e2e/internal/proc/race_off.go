//go:build !race

package proc

// race says that the test runs under the race detector, so the processes do too.
const race = false
