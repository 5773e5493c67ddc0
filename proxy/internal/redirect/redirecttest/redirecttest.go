// Package redirecttest makes a pod's network for tests: a network namespace that
// is the pod's and one that is everything else, with a cable between them. Both
// live as long as the test. They need root and iproute2; where those are missing,
// the test is skipped and says what it needs.
package redirecttest

import (
	"context"
	"errors"
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

	"golang.org/x/sys/unix"

	"github.com/weftmesh/weft/proxy/internal/origdst"
)

// Addresses of the pod and of its neighbour, which also answers for a service's
// cluster address, and is reached over the default route.
const (
	PodIP      = "10.88.0.2"
	PodIP6     = "fd88::2"
	OutsideIP  = "10.88.0.1"
	OutsideIP6 = "fd88::1"
	OtherIP    = "10.88.0.7" // the neighbour's second address
	OtherIP6   = "fd88::7"
	ServiceIP  = "10.99.0.10"
	ServiceIP6 = "fd99::10"
)

// patience bounds one connection: far more than it needs, for a busy machine.
const patience = 10 * time.Second

// Side is one of the two namespaces. It belongs to one thread.
type Side struct {
	t    testing.TB
	tid  int
	file *os.File
	ask  chan func()
}

// Network returns the pod's side and the other one.
func Network(t testing.TB) (pod, outside *Side) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("redirection is tested in network namespaces: run this test as root (sudo -E go test)")
	}
	if _, err := exec.LookPath("ip"); err != nil {
		t.Skip("redirection is tested in network namespaces, which `ip` connects: install iproute2")
	}
	pod, outside = side(t), side(t)
	pod.Run("ip", "link", "add", "eth0", "type", "veth", "peer", "name", "eth1")
	pod.Run("ip", "link", "set", "eth1", "netns", fmt.Sprint(outside.tid))
	pod.up("eth0", PodIP+"/24", PodIP6+"/64")
	outside.up("eth1", OutsideIP+"/24", OtherIP+"/24", OutsideIP6+"/64", OtherIP6+"/64")
	outside.up("lo", ServiceIP+"/32", ServiceIP6+"/128")
	pod.Run("ip", "route", "add", "default", "via", OutsideIP)
	pod.Run("ip", "-6", "route", "add", "default", "via", OutsideIP6)
	return pod, outside
}

func side(t testing.TB) *Side {
	t.Helper()
	s := &Side{t: t, ask: make(chan func())}
	ready := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		s.tid = unix.Gettid()
		err := unix.Unshare(unix.CLONE_NEWNET)
		if err == nil {
			s.file, err = os.Open(fmt.Sprintf("/proc/self/task/%d/ns/net", s.tid))
		}
		ready <- err
		for f := range s.ask {
			f()
		}
	}()
	t.Cleanup(func() { close(s.ask) })
	err := <-ready
	if errors.Is(err, unix.EPERM) {
		t.Skip("this machine allows root no network namespaces: run where CAP_SYS_ADMIN is given")
	}
	if err != nil {
		t.Fatalf("making a network namespace: %v", err)
	}
	t.Cleanup(func() { _ = s.file.Close() })
	return s
}

func (s *Side) up(device string, addrs ...string) {
	s.t.Helper()
	s.Run("ip", "link", "set", "lo", "up")
	s.Run("ip", "link", "set", device, "up")
	for _, a := range addrs {
		if strings.Contains(a, ":") {
			s.Run("ip", "addr", "add", a, "dev", device, "nodad")
		} else {
			s.Run("ip", "addr", "add", a, "dev", device)
		}
	}
}

// FD is the open namespace; Path names it for other processes' threads.
func (s *Side) FD() int { return int(s.file.Fd()) }

// Path of the namespace, valid in this process's namespace of processes.
func (s *Side) Path() string { return fmt.Sprintf("/proc/%d/task/%d/ns/net", os.Getpid(), s.tid) }

// Do runs f on the namespace's thread: what f opens or starts itself is inside.
func (s *Side) Do(f func()) {
	done := make(chan struct{})
	s.ask <- func() { defer close(done); f() }
	<-done
}

// Run runs a program inside and returns what it says.
func (s *Side) Run(name string, args ...string) string {
	s.t.Helper()
	return s.Feed("", name, args...)
}

// Feed is Run with a standard input.
func (s *Side) Feed(stdin, name string, args ...string) string {
	s.t.Helper()
	var out []byte
	var err error
	s.Do(func() {
		cmd := exec.CommandContext(s.t.Context(), name, args...) //nolint:gosec // a test's own commands
		cmd.Stdin = strings.NewReader(stdin)
		out, err = cmd.CombinedOutput()
	})
	if err != nil {
		s.t.Errorf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// Serve answers connections to addr with name and where the kernel says that the
// client was going, "-" if nothing was redirected, and closes them.
func (s *Side) Serve(name, addr string) {
	s.t.Helper()
	lis := s.Listen(addr)
	go func() {
		for {
			conn, err := lis.Accept()
			if err != nil {
				return
			}
			_ = conn.SetDeadline(time.Now().Add(patience))
			going := "-"
			if dst, ok := origdst.Of(conn.(*net.TCPConn)); ok {
				going = dst.String()
			}
			_, _ = io.WriteString(conn, name+" "+going)
			_ = conn.Close()
		}
	}()
}

// Listen opens a TCP listener inside.
func (s *Side) Listen(addr string) net.Listener {
	s.t.Helper()
	var lis net.Listener
	var err error
	s.Do(func() { lis, err = new(net.ListenConfig).Listen(s.t.Context(), "tcp", addr) })
	if err != nil {
		s.t.Fatalf("listening on %s: %v", addr, err)
	}
	s.t.Cleanup(func() { _ = lis.Close() })
	return lis
}

// Who dials, and from where.
type Who struct {
	UID, GID int
	From     string // local IP; any if empty
}

// Dial connects from inside.
func (s *Side) Dial(addr string, who Who) (net.Conn, error) {
	var conn net.Conn
	var err error
	s.Do(func() {
		// The thread's, not the process's; sockets remember it.
		set(syscall.SYS_SETFSGID, who.GID)
		set(syscall.SYS_SETFSUID, who.UID)
		defer set(syscall.SYS_SETFSGID, 0)
		defer set(syscall.SYS_SETFSUID, 0)
		d := net.Dialer{Timeout: patience, FallbackDelay: -1}
		if who.From != "" {
			d.LocalAddr = &net.TCPAddr{IP: net.ParseIP(who.From)}
		}
		conn, err = d.DialContext(context.WithoutCancel(s.t.Context()), "tcp", addr)
	})
	return conn, err
}

func set(trap uintptr, id int) { _, _, _ = syscall.RawSyscall(trap, uintptr(id), 0, 0) }

// Ask connects and returns what the server there says, or the error in words.
func (s *Side) Ask(addr string, who Who) string {
	conn, err := s.Dial(addr, who)
	if err != nil {
		if errno, ok := errors.AsType[syscall.Errno](err); ok {
			return errno.Error()
		}
		return err.Error()
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(patience))
	got, err := io.ReadAll(conn)
	if err != nil {
		return err.Error()
	}
	return string(got)
}
