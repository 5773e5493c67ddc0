// Package child runs other processes of the mesh under `weft`: each with a log
// file, ended with its parent, and restarted a moment after it dies, as a
// Deployment would.
package child

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

// Spec is one process to run.
type Spec struct {
	// Name is unique in its set and names the log file.
	Name string
	Path string
	Args []string
	// Env is added to the parent's environment.
	Env []string
	// Restart is how long after an unexpected end the process starts again;
	// 0 means never.
	Restart time.Duration
}

// Child is one running process.
type Child struct {
	Spec Spec
	// Log is the path of its log file.
	Log string

	mu       sync.Mutex
	cmd      *exec.Cmd
	ends     int
	started  time.Time
	stopping bool
	changed  func(text string)
	done     chan struct{}
}

// Start runs the process with its log in dir. When it ends unasked, changed is
// told one line for a person; it must not block. Start returns once the process
// exists; it may not be ready.
func Start(ctx context.Context, spec Spec, dir string, changed func(text string)) (*Child, error) {
	c := &Child{Spec: spec, Log: filepath.Join(dir, spec.Name+".log"), changed: changed, done: make(chan struct{})}
	out, err := os.OpenFile(c.Log, os.O_CREATE|os.O_TRUNC|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the log of %s: %w", spec.Name, err)
	}
	if err := c.launch(out); err != nil {
		_ = out.Close()
		return nil, err
	}
	go c.keep(ctx, out)
	return c, nil
}

func (c *Child) launch(out io.Writer) error {
	cmd := exec.Command(c.Spec.Path, c.Spec.Args...) //nolint:gosec,noctx // our own binary; Stop ends it
	cmd.Env = append(os.Environ(), c.Spec.Env...)
	cmd.Stdout, cmd.Stderr = out, out
	// A process group of its own, so that Ctrl-C reaches the parent alone and
	// the stop order is the parent's; and an end with the parent, come what may.
	cmd.SysProcAttr = childAttr()
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("starting %s: %w", c.Spec.Name, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cmd, c.started = cmd, time.Now()
	return nil
}

// keep waits for the process and starts it again while it should run.
func (c *Child) keep(ctx context.Context, out io.Closer) {
	defer close(c.done)
	defer func() { _ = out.Close() }()
	for {
		c.mu.Lock()
		cmd := c.cmd
		c.mu.Unlock()
		_ = cmd.Wait()
		c.mu.Lock()
		c.ends++
		stopping := c.stopping
		c.mu.Unlock()
		if stopping || c.Spec.Restart == 0 {
			if !stopping {
				c.changed(fmt.Sprintf("%s ended (%s)", c.Spec.Name, cmd.ProcessState))
			}
			return
		}
		c.changed(fmt.Sprintf("%s ended (%s), starts again in %s", c.Spec.Name, cmd.ProcessState, c.Spec.Restart))
		select {
		case <-ctx.Done():
			return
		case <-time.After(c.Spec.Restart):
		}
		c.mu.Lock()
		stopping = c.stopping
		c.mu.Unlock()
		if stopping {
			return
		}
		file, ok := out.(*os.File)
		if !ok {
			return
		}
		if err := c.launch(file); err != nil {
			c.changed(err.Error())
			return
		}
		c.changed(fmt.Sprintf("%s is back, as process %d", c.Spec.Name, c.PID()))
	}
}

// PID is the process's number now.
func (c *Child) PID() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cmd.Process.Pid
}

// Ended says whether the process is gone for good.
func (c *Child) Ended() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// Kill ends the process with SIGKILL, as a failure would.
func (c *Child) Kill() {
	c.mu.Lock()
	defer c.mu.Unlock()
	_ = c.cmd.Process.Kill()
}

// Stop asks the process to end and waits for at most grace; then it is killed.
func (c *Child) Stop(grace time.Duration) {
	c.mu.Lock()
	c.stopping = true
	err := c.cmd.Process.Signal(syscall.SIGTERM)
	c.mu.Unlock()
	if errors.Is(err, os.ErrProcessDone) {
		grace = 0
	}
	select {
	case <-c.done:
		return
	case <-time.After(grace):
	}
	c.Kill()
	<-c.done
}

// Tail returns the end of the log, at most n bytes, for an error message.
func (c *Child) Tail(n int64) string {
	file, err := os.Open(c.Log)
	if err != nil {
		return err.Error()
	}
	defer func() { _ = file.Close() }()
	if info, err := file.Stat(); err == nil && info.Size() > n {
		_, _ = file.Seek(-n, io.SeekEnd)
	}
	body, err := io.ReadAll(io.LimitReader(file, n))
	if err != nil {
		return err.Error()
	}
	return string(body)
}
