package node

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// State is what a component of a node does.
type State struct {
	Running  bool `json:"running"`
	Paused   bool `json:"paused"`
	Restarts int  `json:"restarts"` // after an end that nobody asked for
}

// again is how long after an unexpected end a component is started again.
const again = time.Second

// grace is how long a component has to end before it is killed.
const grace = 10 * time.Second

// keeper runs the components of a node. It is the only one that waits for
// processes there: PID 1 has to bury orphans, and waiting for anyone would take
// the end of a component from whoever waits for that.
type keeper struct {
	logs string // where the components' output goes

	mu   sync.Mutex
	kept map[string]*kept
}

type kept struct {
	what   Component
	wanted bool
	paused bool
	pid    int // 0 if it doesn't run
	ended  chan struct{}
	again  int
}

func newKeeper(c Config) *keeper {
	k := &keeper{logs: "/var/log", kept: map[string]*kept{}}
	for _, what := range c.Components {
		k.kept[what.Name] = &kept{what: what}
	}
	return k
}

func (k *keeper) states() map[string]State {
	k.mu.Lock()
	defer k.mu.Unlock()
	out := map[string]State{}
	for name, p := range k.kept {
		out[name] = State{Running: p.pid != 0, Paused: p.paused, Restarts: p.again}
	}
	return out
}

// start does nothing to a component that runs.
func (k *keeper) start(p *kept) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	p.wanted = true
	return k.spawn(p)
}

func (k *keeper) spawn(p *kept) error {
	if p.pid != 0 {
		return nil
	}
	log, err := os.OpenFile(filepath.Join(k.logs, p.what.Name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644) //nolint:gosec // a log that people read
	if err != nil {
		return fmt.Errorf("opening a component's log: %w", err)
	}
	defer log.Close() //nolint:errcheck // the child has its own descriptor
	null, err := os.Open(os.DevNull)
	if err != nil {
		return fmt.Errorf("opening a component's input: %w", err)
	}
	defer null.Close() //nolint:errcheck // the same
	// The lock is held from fork to here, so that reap knows the process when it ends.
	as := &syscall.SysProcAttr{Setsid: true}
	if p.what.User != 0 {
		as.Credential = &syscall.Credential{Uid: p.what.User, Gid: p.what.User}
	}
	pid, err := syscall.ForkExec(p.what.Path, append([]string{p.what.Name}, p.what.Args...), &syscall.ProcAttr{ //nolint:gosec // a component of the cluster
		Dir:   "/",
		Env:   os.Environ(),
		Files: []uintptr{null.Fd(), log.Fd(), log.Fd()},
		Sys:   as,
	})
	if err != nil {
		return fmt.Errorf("starting %s: %w", p.what.Path, err)
	}
	p.pid, p.paused, p.ended = pid, false, make(chan struct{})
	return nil
}

// stop ends a component with the signal, and returns when it has ended.
func (k *keeper) stop(p *kept, sig syscall.Signal) error {
	k.mu.Lock()
	p.wanted = false
	pid, ended, paused := p.pid, p.ended, p.paused
	if pid == 0 {
		k.mu.Unlock()
		return nil
	}
	err := unix.Kill(pid, sig)
	if paused {
		_ = unix.Kill(pid, unix.SIGCONT)
	}
	k.mu.Unlock()
	if err != nil {
		return fmt.Errorf("stopping %s: %w", p.what.Name, err)
	}
	late := time.NewTimer(grace)
	defer late.Stop()
	select {
	case <-ended:
		return nil
	case <-late.C:
	}
	if err := k.signal(p, unix.SIGKILL); err != nil {
		return err
	}
	<-ended
	return nil
}

// signal sends one to a component that runs.
func (k *keeper) signal(p *kept, sig syscall.Signal) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if p.pid == 0 {
		return nil
	}
	if err := unix.Kill(p.pid, sig); err != nil {
		return fmt.Errorf("sending %v to %s: %w", sig, p.what.Name, err)
	}
	switch sig {
	case unix.SIGSTOP:
		p.paused = true
	case unix.SIGCONT:
		p.paused = false
	}
	return nil
}

// reap buries every process that ended, and starts a component again that
// should run.
func (k *keeper) reap(ended <-chan os.Signal) {
	for range ended {
		for {
			pid, err := unix.Wait4(-1, nil, unix.WNOHANG, nil)
			if err == unix.EINTR {
				continue
			}
			if err != nil || pid <= 0 {
				break
			}
			k.bury(pid)
		}
	}
}

func (k *keeper) bury(pid int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, p := range k.kept {
		if p.pid != pid {
			continue
		}
		p.pid, p.paused = 0, false
		close(p.ended)
		if p.wanted {
			slog.Warn("component ended by itself", "component", p.what.Name)
			time.AfterFunc(again, func() { k.revive(p) })
		}
	}
}

func (k *keeper) revive(p *kept) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !p.wanted || p.pid != 0 {
		return
	}
	p.again++
	if err := k.spawn(p); err != nil {
		slog.Error("component can't be started again", "component", p.what.Name, "error", err)
	}
}
