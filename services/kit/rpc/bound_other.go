//go:build !linux

package rpc

import (
	"net"
	"time"
)

// setUserTimeout does nothing: only Linux has TCP_USER_TIMEOUT.
func setUserTimeout(*net.TCPConn, time.Duration) error { return nil }
