package wire

import (
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// Delivered waits until the other end's kernel has all that was written to a
// connection, for as long as that goes on: within each patience some of it has to go.
// What a peer sends to a connection that was closed has the kernel forget what is still
// on its way. A connection that cannot be asked has delivered all.
func Delivered(c net.Conn, patience time.Duration) {
	left := underway(c)
	if left == 0 {
		return
	}
	const often = 20 * time.Millisecond
	moved := time.Now()
	for wait := time.Millisecond; left > 0 && time.Since(moved) < patience; wait = min(2*wait, often) {
		<-time.After(wait)
		now := underway(c)
		if now < left {
			moved = time.Now()
		}
		left = now
	}
}

// underway is how many bytes the other end's kernel has not said that it has.
func underway(c net.Conn) (n int) {
	raw, _ := rawBelow(c)
	if raw == nil {
		return 0
	}
	var err error
	if raw.Control(func(fd uintptr) { n, err = unix.IoctlGetInt(int(fd), unix.SIOCOUTQ) }) != nil || err != nil {
		return 0
	}
	return n
}
