package wire

import (
	"log/slog"
	"net"
	"runtime/debug"
)

// Survive ends connections whose goroutine has a bug, rather than the process. It
// is deferred.
func Survive(conns ...net.Conn) {
	if cause := recover(); cause != nil {
		slog.Error("a connection was given up", "panic", cause, "stack", string(debug.Stack()))
		for _, c := range conns {
			_ = c.Close()
		}
	}
}
