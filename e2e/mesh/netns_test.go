package mesh

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

// applicationUID is the application's user: what it sends goes to the proxy.
const applicationUID = 2103

// redirected are the arguments of a pod's init container. An application's
// packets pass output, a neighbour's prerouting. The proxies and the control
// plane of this test all run as root.
const redirected = "--incoming-proxy-port 4143 --outgoing-proxy-port 4140 --proxy-uid 0 --inbound-ports-to-ignore 4190,4191"

// neighbour is a network namespace next to the one that the test runs in. It
// belongs to one thread, and ends with it.
type neighbour struct {
	t   *testing.T
	tid int
	ask chan func()
}

func newNeighbour(t *testing.T) *neighbour {
	t.Helper()
	n := &neighbour{t: t, ask: make(chan func())}
	ready := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		n.tid = syscall.Gettid()
		err := syscall.Unshare(syscall.CLONE_NEWNET)
		ready <- err
		for f := range n.ask {
			f()
		}
	}()
	if err := <-ready; err != nil {
		t.Fatalf("making a network namespace: %v", err)
	}
	// The processes started there end before their thread does: cleanups run last
	// in, first out.
	t.Cleanup(func() { close(n.ask) })
	run(t, "ip", "link", "add", "pod", "type", "veth", "peer", "name", "far")
	run(t, "ip", "link", "set", "far", "netns", fmt.Sprint(n.tid))
	n.do(func() {
		up(t, "far", clientIP, clientIP6)
		run(t, "ip", "route", "add", "default", "via", serverIP)
	})
	return n
}

// setUp configures the namespace that the test runs in.
func setUp(t *testing.T) {
	t.Helper()
	up(t, "pod", serverIP, serverIP6)
}

func up(t *testing.T, device, ip, ip6 string) {
	t.Helper()
	run(t, "ip", "link", "set", "lo", "up")
	run(t, "ip", "addr", "add", ip+"/24", "dev", device)
	run(t, "ip", "addr", "add", ip6+"/64", "dev", device, "nodad")
	run(t, "ip", "link", "set", device, "up")
	run(t, os.Getenv(initBinary), strings.Fields("init "+redirected)...)
}

func run(t *testing.T, name string, args ...string) {
	t.Helper()
	cmd := exec.Command(name, args...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
}

// do runs f on the neighbour's thread: sockets and processes that f makes itself
// belong to the neighbour.
func (n *neighbour) do(f func()) {
	done := make(chan struct{})
	n.ask <- func() { defer close(done); f() }
	<-done
}

// dial connects from the neighbour, as the user.
func (n *neighbour) dial(ctx context.Context, network, addr string, uid int) (net.Conn, error) {
	var conn net.Conn
	var err error
	n.do(func() {
		// The thread's, not the process's; sockets remember it.
		_, _, _ = syscall.RawSyscall(syscall.SYS_SETFSUID, uintptr(uid), 0, 0)
		defer func() { _, _, _ = syscall.RawSyscall(syscall.SYS_SETFSUID, 0, 0, 0) }()
		conn, err = (&net.Dialer{Timeout: 5 * time.Second, FallbackDelay: -1}).DialContext(ctx, network, addr)
	})
	return conn, err
}

// relays makes the control plane reachable at the same loopback addresses over
// there.
func (h *house) relays(n *neighbour) {
	h.t.Helper()
	for _, addr := range []string{h.destinationAddr, h.policyAddr, h.identityAddr} {
		lis, err := net.Listen("tcp", addr)
		if err != nil {
			n.t.Errorf("relaying %s: %v", addr, err)
			return
		}
		n.t.Cleanup(func() { _ = lis.Close() })
		go func() {
			for {
				c, err := lis.Accept()
				if err != nil {
					return
				}
				go relay(c, addr)
			}
		}()
	}
}

func relay(c net.Conn, addr string) {
	defer func() { _ = c.Close() }()
	up, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return
	}
	defer func() { _ = up.Close() }()
	go func() { _, _ = io.Copy(up, c); _ = up.Close() }()
	_, _ = io.Copy(c, up)
}
