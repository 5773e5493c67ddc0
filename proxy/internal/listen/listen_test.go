package listen

import (
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weftmesh/weft/proxy/internal/config"
)

func TestSocketsAreAsTheEnvironmentSays(t *testing.T) {
	l, err := TCP(t.Context(), netip.MustParseAddrPort("127.0.0.1:0"), config.Direction{
		AcceptKeepalive: 7 * time.Second, AcceptUserTO: 30 * time.Second, Backlog: 3,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := new(net.Dialer).DialContext(t.Context(), "tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	accepted, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer accepted.Close()
	raw, err := accepted.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]int{}
	_ = raw.Control(func(fd uintptr) {
		got["timeout"], _ = unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT)
		got["idle"], _ = unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_KEEPIDLE)
		got["keepalive"], _ = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_KEEPALIVE)
		got["nodelay"], _ = unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NODELAY)
	})
	if got["timeout"] != 30_000 || got["idle"] != 7 || got["keepalive"] != 1 || got["nodelay"] != 1 {
		t.Errorf("%v", got)
	}
	if n := backlog(t, l); n != 3 {
		t.Errorf("backlog %d, want 3", n)
	}
	again, err := TCP(t.Context(), l.Addr().(*net.TCPAddr).AddrPort(), config.Direction{})
	if err == nil {
		_ = again.Close()
		t.Error("a busy port was bound")
	}
}

// backlog asks the kernel: for a listener, the length of its queue is where a
// connection has what the peer has not acknowledged.
func backlog(t *testing.T, l net.Listener) int {
	t.Helper()
	raw, err := l.(*net.TCPListener).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var info *unix.TCPInfo
	_ = raw.Control(func(fd uintptr) { info, err = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO) })
	if err != nil {
		t.Fatal(err)
	}
	if most, err := os.ReadFile("/proc/sys/net/core/somaxconn"); err == nil {
		if n, err := strconv.Atoi(strings.TrimSpace(string(most))); err == nil && n < 3 {
			t.Skip("the system allows no such backlog")
		}
	}
	return int(info.Sacked)
}
