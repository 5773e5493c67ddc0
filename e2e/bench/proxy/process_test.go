package proxy

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weftmesh/weft/e2e/internal/proc"
)

// patience is how long an answer may take on a machine that does much else.
const patience = proc.Patience

// The processors of this run: the first that we may use for the load and the
// application, the last for the proxies. They are one where there is only one.
var loadCore, proxyCore = cores()

func cores() (first, last int) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return 0, 0
	}
	first = -1
	for i := range len(set) * 64 {
		if !set.IsSet(i) {
			continue
		}
		if first < 0 {
			first = i
		}
		last = i
	}
	return max(first, 0), last
}

func pin(thread, core int) error {
	var set unix.CPUSet
	set.Set(core)
	if err := unix.SchedSetaffinity(thread, &set); err != nil {
		return fmt.Errorf("binding thread %d to processor %d: %w", thread, core, err)
	}
	return nil
}

// pinSelf binds every thread of this process, and so those that they start, to
// the load's processor.
func pinSelf() error {
	threads, err := tasks(os.Getpid())
	if err != nil {
		return err
	}
	for _, thread := range threads {
		if err := pin(thread, loadCore); err != nil {
			return err
		}
	}
	return nil
}

// launch starts a process on one processor and returns its number. The test ends
// it, and shows what it wrote if the test failed.
func launch(t *testing.T, core int, env []string, binary string, args ...string) int {
	t.Helper()
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(binary, args...)
	cmd.Env = append(append(os.Environ(), "GOMAXPROCS=1"), env...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	// A child inherits the processors of the thread that forks it.
	runtime.LockOSThread()
	err = pin(0, core)
	if err == nil {
		err = cmd.Start()
	}
	if back := pin(0, loadCore); err == nil {
		err = back
	}
	runtime.UnlockOSThread()
	if err != nil {
		t.Fatalf("starting %s: %v", binary, err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_ = log.Close()
		if text, err := os.ReadFile(log.Name()); t.Failed() && err == nil {
			t.Logf("---- %s %s\n%s", binary, strings.Join(args, " "), text)
		}
	})
	return cmd.Process.Pid
}

// listens waits until something accepts connections at the address.
func listens(t *testing.T, addr string) {
	t.Helper()
	proc.Eventually(t, addr+" listens", func() error {
		conn, err := net.DialTimeout("tcp", addr, time.Second)
		if err != nil {
			return err
		}
		return conn.Close()
	})
}

func tasks(pid int) ([]int, error) {
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		return nil, fmt.Errorf("listing threads: %w", err)
	}
	var threads []int
	for _, e := range entries {
		if n, err := strconv.Atoi(e.Name()); err == nil {
			threads = append(threads, n)
		}
	}
	return threads, nil
}

// cpu is what the processes have computed so far, from the scheduler's own
// count in nanoseconds: utime and stime come in steps of 10 ms.
func cpu(t *testing.T, pids []int) time.Duration {
	t.Helper()
	var sum time.Duration
	for _, pid := range pids {
		threads, err := tasks(pid)
		if err != nil {
			t.Fatal(err)
		}
		for _, thread := range threads {
			line, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/schedstat", pid, thread))
			if os.IsNotExist(err) {
				continue // it has ended since; threads of these processes rarely do
			}
			if err != nil {
				t.Fatal(err)
			}
			ran, _, _ := bytes.Cut(line, []byte(" "))
			n, err := strconv.ParseInt(string(ran), 10, 64)
			if err != nil {
				t.Fatalf("reading schedstat: %v", err)
			}
			sum += time.Duration(n)
		}
	}
	return sum
}

// resident is the memory of the processes in MB.
func resident(t *testing.T, pids []int) float64 {
	t.Helper()
	var kb float64
	for _, pid := range pids {
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(status)) {
			if value, ok := strings.CutPrefix(line, "VmRSS:"); ok {
				n, err := strconv.ParseFloat(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 64)
				if err != nil {
					t.Fatalf("reading VmRSS: %v", err)
				}
				kb += n
			}
		}
	}
	return kb / 1024
}
