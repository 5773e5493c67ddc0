package redirect

import (
	"errors"
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/weftmesh/weft/services/kit/say"
)

// Within opens the network namespace at path and hands it to f; an empty path is
// the process's own namespace.
func Within(path string, f func(Namespace) error) error {
	if path == "" {
		return f(Namespace{})
	}
	file, err := os.Open(path)
	if err != nil {
		return &say.Problem{
			What: "the network namespace " + path + " cannot be opened", Why: cause(err), Err: err,
			Next: "name a file below /var/run/netns or /proc/<pid>/ns/net that exists",
		}
	}
	defer func() { _ = file.Close() }() // only read
	var fs unix.Statfs_t
	if err := unix.Fstatfs(int(file.Fd()), &fs); err != nil || fs.Type != unix.NSFS_MAGIC {
		return &say.Problem{
			What: path + " is not a network namespace", Err: err,
			Next: "name a file below /var/run/netns or /proc/<pid>/ns/net",
		}
	}
	return f(Namespace{FD: int(file.Fd())})
}

// Do runs f on a thread inside the namespace. Goroutines that f starts are not
// inside; files and sockets that it opens itself are.
func (n Namespace) Do(f func() error) error {
	if n.FD <= 0 {
		return f()
	}
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		if err := unix.Setns(n.FD, unix.CLONE_NEWNET); err != nil {
			done <- explain(fmt.Errorf("entering the network namespace: %w", err))
			return
		}
		done <- f()
	}()
	return <-done
}

// closeWait is where the kernel keeps how long a half-closed connection is
// tracked; it is the namespace of the thread that opens it.
const closeWait = "/proc/sys/net/netfilter/nf_conntrack_tcp_timeout_close_wait"

// CloseWait sets how many seconds the namespace remembers connections that one
// side has closed.
func (n Namespace) CloseWait(seconds int) error {
	err := n.Do(func() error {
		return os.WriteFile(closeWait, fmt.Appendf(nil, "%d\n", seconds), 0o644) //nolint:gosec // a kernel setting, whose mode this does not change
	})
	if err == nil {
		return nil
	}
	return &say.Problem{
		What: "nf_conntrack_tcp_timeout_close_wait cannot be set", Why: cause(err), Err: err,
		Next: "--timeout-close-wait-secs needs a privileged container that runs as root (proxyInit.runAsRoot=true), or leave it out",
	}
}

// cause is the last part of an error of the file system.
func cause(err error) string {
	if p, ok := errors.AsType[*os.PathError](err); ok {
		return p.Path + ": " + p.Err.Error()
	}
	return err.Error()
}
