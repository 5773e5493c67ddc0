package endpoint

import (
	"net"
	"net/netip"
	"testing"
)

// TestSourceOfALoopbackWorkload: the peer sees the workload's own address, even
// where the kernel would have chosen 127.0.0.1.
func TestSourceOfALoopbackWorkload(t *testing.T) {
	lis, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer lis.Close()
	to := lis.Addr().(*net.TCPAddr).AddrPort()
	for _, tt := range []struct{ own, want string }{
		{"127.0.0.9", "127.0.0.9"},
		{"10.0.0.1", "127.0.0.1"}, // not loopback: the kernel knows better
		{"::1", "127.0.0.1"},
	} {
		d := Deps{Local: []netip.Addr{netip.MustParseAddr(tt.own)}}
		conn, err := d.dial(t.Context(), to)
		if err != nil {
			t.Fatal(err)
		}
		got, err := lis.Accept()
		if err != nil {
			t.Fatal(err)
		}
		if ip := got.RemoteAddr().(*net.TCPAddr).IP.String(); ip != tt.want {
			t.Errorf("own address %s: came from %s, want %s", tt.own, ip, tt.want)
		}
		_, _ = got.Close(), conn.Close()
	}
}
