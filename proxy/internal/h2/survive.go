package h2

import (
	"errors"
	"log/slog"
	"runtime/debug"
)

// errBug ends a connection on which something went wrong that should not.
var errBug = errors.New("the connection was given up after a bug")

// survive keeps one connection's bug from ending all the others. It is deferred by
// goroutines of the connection.
func (c *Conn) survive() {
	if cause := recover(); cause != nil {
		slog.Error("an HTTP/2 connection was given up", "panic", cause, "stack", string(debug.Stack()))
		_ = c.nc.Close()
		go c.fail(errBug) // which may have to wait for a lock that is never given back
	}
}
