package rpc

import (
	"net"
	"testing"

	"golang.org/x/sys/unix"
)

func TestBoundSetsSocketOptions(t *testing.T) {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lis.Close() }()
	out, err := net.Dial("tcp", lis.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = out.Close() }()
	in, err := Bound(lis).Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = in.Close() }()
	raw, err := in.(*countedTCP).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	option := func(level, name int) (value int) {
		if err := raw.Control(func(fd uintptr) { value, err = unix.GetsockoptInt(int(fd), level, name) }); err != nil {
			t.Fatal(err)
		}
		return value
	}
	// The kernel doubles SO_SNDBUF for its own bookkeeping (socket(7)).
	if got := option(unix.SOL_SOCKET, unix.SO_SNDBUF); got != 2*sendBuffer {
		t.Errorf("SO_SNDBUF = %d, want %d", got, 2*sendBuffer)
	}
	if got := option(unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT); got != 40_000 {
		t.Errorf("TCP_USER_TIMEOUT = %d ms, want 40000", got)
	}
}
