package cluster

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// group is processes that end with this program, however it ends. The kernel
// kills a child when the thread that started it ends, so they have one thread,
// which stays until the group ends.
type group struct {
	dir    string
	failed chan error // the first process that ended by itself

	mu      sync.Mutex
	ending  bool
	running []*exec.Cmd
	wait    sync.WaitGroup

	ask  chan func()
	once sync.Once
}

func newGroup(dir string) *group {
	g := &group{dir: dir, failed: make(chan error, 1), ask: make(chan func())}
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		for f := range g.ask {
			f()
		}
	}()
	return g
}

// start starts a process that writes to <name>.log of the group's directory.
func (g *group) start(name, path string, args ...string) error {
	file := filepath.Join(g.dir, name+".log")
	log, err := os.Create(file)
	if err != nil {
		return fmt.Errorf("making a log: %w", err)
	}
	defer log.Close()                  //nolint:errcheck // the child has its own descriptor
	cmd := exec.Command(path, args...) //nolint:gosec,noctx // end ends it
	cmd.Args[0] = name
	cmd.Dir = g.dir
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGKILL, Setpgid: true} // Ctrl-C is for the program
	started := make(chan error)
	g.ask <- func() { started <- cmd.Start() }
	if err := <-started; err != nil {
		return fmt.Errorf("starting %s: %w", name, err)
	}
	g.mu.Lock()
	g.running = append(g.running, cmd)
	g.mu.Unlock()
	g.wait.Go(func() {
		err := cmd.Wait()
		g.mu.Lock()
		defer g.mu.Unlock()
		if !g.ending {
			select {
			case g.failed <- fmt.Errorf("%s ended: %v; its log is %s", name, err, file): //nolint:errorlint // an exit code is no cause to branch on
			default:
			}
		}
	})
	return nil
}

// end ends the processes, the last one first, and waits for them.
func (g *group) end() {
	g.once.Do(func() {
		g.mu.Lock()
		g.ending = true
		running := g.running
		g.mu.Unlock()
		for i := range running {
			_ = running[len(running)-1-i].Process.Signal(unix.SIGTERM)
		}
		late := time.AfterFunc(lightGrace, func() {
			for _, cmd := range running {
				_ = cmd.Process.Kill()
			}
		})
		g.wait.Wait()
		late.Stop()
		close(g.ask)
	})
}
