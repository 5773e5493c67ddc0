package node

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// The first arguments by which the program starts as a node or a switch. The
// second is an absolute path below the state directory, by which Remove finds
// every process that belongs to it.
const (
	wordNode   = "node"      // waits for its control groups, then becomes wordInit
	wordInit   = "node-init" // PID 1 of a node
	wordSwitch = "switch"
)

const (
	nodeFlags   = unix.CLONE_NEWNET | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC
	switchFlags = unix.CLONE_NEWNET | unix.CLONE_NEWPID
)

// patience is how long a node may take to make its namespaces.
const patience = 30 * time.Second

// Main runs a node or a switch if the arguments (without the program's name)
// ask for it; it is false for other arguments.
func Main(ctx context.Context, args []string) (bool, error) {
	if len(args) != 2 {
		return false, nil
	}
	switch args[0] {
	case wordNode:
		return true, enter(args[1])
	case wordInit:
		return true, runInit(ctx, args[1])
	case wordSwitch:
		if err := waitGate(); err != nil {
			return true, err
		}
		return true, runSwitch(ctx, args[1])
	}
	return false, nil
}

// child is a process that waits at its gate until release. If its parent ends
// before that, it ends as well.
type child struct {
	pid  int
	gate *os.File
	out  string
	done chan struct{}
}

func launch(program, word, arg, out string, flags uintptr) (*child, error) {
	log, err := os.Create(out)
	if err != nil {
		return nil, fmt.Errorf("making a log: %w", err)
	}
	defer log.Close() //nolint:errcheck // the child has its own descriptor
	r, w, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("making a gate: %w", err)
	}
	defer r.Close()                         //nolint:errcheck // the child has its own descriptor
	cmd := exec.Command(program, word, arg) //nolint:gosec,noctx // our own program, which outlives the context
	cmd.Stdout, cmd.Stderr = log, log
	cmd.ExtraFiles = []*os.File{r}
	cmd.Dir = "/"
	cmd.Env = []string{"PATH=" + searchPath, "HOME=/tmp"}
	cmd.SysProcAttr = &unix.SysProcAttr{Cloneflags: flags, Setsid: true}
	if err := cmd.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("starting %s in namespaces of its own: %w", word, err), w.Close())
	}
	c := &child{pid: cmd.Process.Pid, gate: w, out: out, done: make(chan struct{})}
	go func() {
		_ = cmd.Wait() // its words are in the log
		close(c.done)
	}()
	return c, nil
}

func (c *child) kill() {
	_ = unix.Kill(c.pid, unix.SIGKILL)
	_ = c.gate.Close() // nothing was written
	<-c.done
}

// release opens the gate and waits until the process listens.
func (c *child) release(ctx context.Context, socket string) error {
	if _, err := io.WriteString(c.gate, gateWord); err != nil {
		return c.died()
	}
	if err := c.gate.Close(); err != nil {
		return fmt.Errorf("opening the gate: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		if conn, err := (&net.Dialer{}).DialContext(ctx, "unix", socket); err == nil {
			_ = conn.Close()
			return nil
		}
		select {
		case <-c.done:
			return c.died()
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s: %w", socket, ctx.Err())
		case <-tick.C:
		}
	}
}

func (c *child) died() error {
	<-c.done
	said, err := os.ReadFile(c.out)
	if err != nil {
		return fmt.Errorf("the process ended at once: %w", err)
	}
	return fmt.Errorf("the process ended at once: %s", bytes.TrimSpace(said))
}

const (
	gateFD   = 3
	gateWord = "go\n"
)

func waitGate() error {
	gate := os.NewFile(gateFD, "gate")
	said, err := io.ReadAll(io.LimitReader(gate, int64(len(gateWord))+1))
	if err := errors.Join(err, gate.Close()); err != nil {
		return fmt.Errorf("waiting at the gate: %w", err)
	}
	if string(said) != gateWord {
		return errors.New("the program that started this ended first")
	}
	return nil
}

type process struct {
	pid  int
	word string
	path string
}

// processes finds the nodes and switches at or below dir by their arguments.
func processes(dir string) []process {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var out []process
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		line, err := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline")) // empty for a zombie
		if err != nil {
			continue
		}
		if word, path, ok := arguments(string(line)); ok && (path == dir || strings.HasPrefix(path, dir+"/")) {
			out = append(out, process{pid, word, path})
		}
	}
	return out
}

func arguments(cmdline string) (word, path string, ok bool) {
	args := strings.Split(strings.TrimSuffix(cmdline, "\x00"), "\x00")
	if len(args) != 3 {
		return "", "", false
	}
	switch args[1] {
	case wordNode, wordInit, wordSwitch:
		return args[1], args[2], filepath.IsAbs(args[2])
	}
	return "", "", false
}
