// Package proc starts Weft's real processes for tests, watches over them, and
// ends every one that it started. It knows them as binaries only.
package proc

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Patience is how long a process may take to do what a test waits for. It is
// generous, since two cores may be building and running much else.
const Patience = time.Minute

// Process is one running binary.
type Process struct {
	Name string
	// Admin is the address of its admin server; empty when it has none.
	Admin string

	t    testing.TB
	cmd  *exec.Cmd
	log  *log
	done chan struct{}
}

// Start runs a binary of the workspace with arguments and extra environment.
// The test ends it; its log is printed when the test has failed.
func Start(t testing.TB, name string, env []string, args ...string) *Process {
	t.Helper()
	cmd := exec.Command(Binary(t, name), args...) //nolint:gosec,noctx // the binary is ours; Stop and Kill end it
	cmd.Env = append(os.Environ(), env...)
	p := &Process{Name: name, t: t, cmd: cmd, log: &log{}, done: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = p.log, p.log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatalf("starting %s: %v", name, err)
	}
	go func() {
		_ = cmd.Wait()
		close(p.done)
	}()
	t.Cleanup(func() {
		p.Stop()
		if t.Failed() {
			t.Logf("---- %s %s\n%s", name, strings.Join(args, " "), p.log)
		}
	})
	return p
}

// Service runs one of our services with an admin server and waits until it is ready.
func Service(t testing.TB, name string, env []string, args ...string) *Process {
	t.Helper()
	p := Launch(t, name, env, args...)
	p.Ready()
	return p
}

// Launch is Service without the wait.
func Launch(t testing.TB, name string, env []string, args ...string) *Process {
	t.Helper()
	admin := FreePort(t)
	p := Start(t, name, env, append(args, "-obs.admin", admin)...)
	p.Admin = admin
	return p
}

// Ready waits until the process says that it is ready.
func (p *Process) Ready() {
	p.t.Helper()
	Eventually(p.t, p.Name+" is ready", func() error {
		select {
		case <-p.done:
			p.t.Fatalf("%s ended (%s) before it was ready:\n%s", p.Name, p.cmd.ProcessState, p.log)
		default:
		}
		_, err := p.Get("/ready")
		return err
	})
}

// Get reads a page of the admin server; an answer other than 200 is an error.
func (p *Process) Get(path string) (string, error) {
	client := http.Client{Timeout: 2 * time.Second}
	resp, err := client.Get("http://" + p.Admin + path) //nolint:noctx // the client has a time limit
	if err != nil {
		return "", err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 8<<20))
	if err != nil {
		return "", err
	}
	if resp.StatusCode != http.StatusOK {
		return "", fmt.Errorf("%s: %s: %s", path, resp.Status, body)
	}
	return string(body), nil
}

// PID is the process's number, to read of it what the system knows.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Log is what the process has written so far, the newest 256 KiB of it.
func (p *Process) Log() string { return p.log.String() }

// Stop asks the process to end and waits; one that does not is killed.
func (p *Process) Stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
	case <-time.After(Patience):
		p.Kill()
	}
}

// Signal sends a signal, such as SIGSTOP or SIGCONT.
func (p *Process) Signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatalf("signalling %s: %v", p.Name, err)
	}
}

// Kill ends the process with SIGKILL and waits until it is gone.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
}

// ExitCode waits for the process to end by itself and returns its code.
func (p *Process) ExitCode(ctx context.Context) int {
	p.t.Helper()
	select {
	case <-p.done:
		return p.cmd.ProcessState.ExitCode()
	case <-ctx.Done():
		p.t.Fatalf("%s did not end: %v", p.Name, ctx.Err())
		return -1
	}
}

// FreePort returns a loopback address that nobody listened on a moment ago.
func FreePort(t testing.TB) string {
	t.Helper()
	return FreePortOn(t, "127.0.0.1")
}

// Ports are given from below those that the kernel gives to outgoing
// connections, of which a busy test has thousands: one of them would take the
// port before the process that it is for.
const (
	firstPort = 20_000
	morePorts = 12_000
)

var (
	given   = map[string]bool{}
	givenMu sync.Mutex
)

// FreePortOn is FreePort on another loopback address.
func FreePortOn(t testing.TB, host string) string {
	t.Helper()
	givenMu.Lock()
	defer givenMu.Unlock()
	var err error
	for range 100 {
		addr := net.JoinHostPort(host, strconv.Itoa(firstPort+rand.IntN(morePorts))) //nolint:gosec // any will do
		if given[addr] {
			continue
		}
		var lis net.Listener
		if lis, err = net.Listen("tcp", addr); err == nil { //nolint:noctx // closed at once
			_ = lis.Close()
			given[addr] = true
			return addr
		}
	}
	t.Fatalf("finding a free port: %v", err)
	return ""
}

// Eventually polls until check returns nil, or fails the test with its last error.
func Eventually(t testing.TB, what string, check func() error) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	end := time.After(Patience)
	for {
		err := check()
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-end:
			t.Fatalf("waiting %s until %s: %v", Patience, what, err)
		}
	}
}

// log keeps the newest output of a process.
type log struct {
	mu  sync.Mutex
	buf []byte
}

const mostLog = 256 << 10

func (l *log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.buf = append(l.buf, p...)
	if over := len(l.buf) - mostLog; over > 0 {
		l.buf = append(l.buf[:0], l.buf[over:]...)
	}
	return len(p), nil
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return string(l.buf)
}
