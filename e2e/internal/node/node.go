package node

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Node is a node that runs.
type Node struct {
	Config
	pid int // of its init, on the machine
}

// Launch starts a node at the switch. None of its components run yet.
func Launch(ctx context.Context, program string, c Config, s *Switch) (*Node, error) {
	if err := c.save(); err != nil {
		return nil, err
	}
	p, err := launch(program, wordNode, c.path(configFile), c.path(outputFile), nodeFlags)
	if err != nil {
		return nil, err
	}
	if err := enclose(c, p.pid); err != nil {
		p.kill()
		return nil, err
	}
	if err := s.plug(ctx, p.pid, c.Address.Addr()); err != nil {
		p.kill()
		return nil, err
	}
	if err := p.release(ctx, c.path(socketFile)); err != nil {
		p.kill()
		return nil, fmt.Errorf("starting node %s: %w", c.Host, err)
	}
	n := &Node{c, p.pid}
	if _, err := n.States(ctx); err != nil { // the socket is there before the mounts are
		p.kill()
		return nil, errors.Join(err, p.died())
	}
	return n, nil
}

// Attach finds the node of a directory, which another program may have started.
func Attach(dir string) (*Node, error) {
	c, err := loadConfig(filepath.Join(dir, configFile))
	if err != nil {
		return nil, err
	}
	running := processes(dir)
	if len(running) == 0 {
		return nil, fmt.Errorf("node %s does not run", c.Host)
	}
	return &Node{c, running[0].pid}, nil
}

// States says what the components do.
func (n *Node) States(ctx context.Context) (map[string]State, error) {
	body, err := ask(ctx, n.path(socketFile), http.MethodGet, "/")
	if err != nil {
		return nil, err
	}
	var out map[string]State
	if err := json.Unmarshal(body, &out); err != nil {
		return nil, fmt.Errorf("reading a node's answer: %w", err)
	}
	return out, nil
}

// Start starts components that do not run.
func (n *Node) Start(ctx context.Context, components ...string) error {
	for _, c := range components {
		if err := n.act(ctx, c, actStart); err != nil {
			return err
		}
	}
	return nil
}

// Stop asks a component to end, and kills it after ten seconds. It stays away
// until Start.
func (n *Node) Stop(ctx context.Context, component string) error {
	return n.act(ctx, component, actStop)
}

// Kill ends a component at once. It stays away until Start.
func (n *Node) Kill(ctx context.Context, component string) error {
	return n.act(ctx, component, actKill)
}

// Pause stops a component's clock: its connections stay and hang, until Resume.
func (n *Node) Pause(ctx context.Context, component string) error {
	return n.act(ctx, component, actPause)
}

// Resume lets a paused component go on.
func (n *Node) Resume(ctx context.Context, component string) error {
	return n.act(ctx, component, actResume)
}

func (n *Node) act(ctx context.Context, component, act string) error {
	if _, err := n.component(component); err != nil {
		return err
	}
	if _, err := ask(ctx, n.path(socketFile), http.MethodPost, "/"+component+"/"+act); err != nil {
		return fmt.Errorf("%s of %s on node %s: %w", act, component, n.Host, err)
	}
	return nil
}

// Crash ends every process of the node at once. Its files stay, with the logs,
// until a cluster starts the node again.
func (n *Node) Crash(ctx context.Context) error { return killAll(ctx, n.Dir) }

// Command prepares a command that runs inside the node, in its namespaces.
func (n *Node) Command(ctx context.Context, argv ...string) *exec.Cmd {
	enter := []string{"-t", strconv.Itoa(n.pid), "-m", "-u", "-i", "-n", "-p", "-C", "--"}
	cmd := exec.CommandContext(ctx, "nsenter", append(enter, argv...)...) //nolint:gosec // a test's own words
	cmd.Env = []string{"PATH=" + searchPath, "HOME=/tmp"}
	cmd.WaitDelay = time.Second // what it left behind may hold its output open
	return cmd
}

// InNetwork prepares a command of the machine that runs in the node's network
// alone: it sees the machine's files, which a node's own commands don't, so it
// may be a program that a test has built.
func (n *Node) InNetwork(ctx context.Context, argv ...string) *exec.Cmd {
	return inNetwork(ctx, n.pid, argv...)
}

// Exec runs a command inside the node and returns what it printed.
func (n *Node) Exec(ctx context.Context, argv ...string) ([]byte, error) {
	cmd := n.Command(ctx, argv...)
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	if err := cmd.Run(); err != nil {
		return out.Bytes(), fmt.Errorf("%s on node %s: %w: %s", strings.Join(argv, " "), n.Host, err, bytes.TrimSpace(said.Bytes()))
	}
	return out.Bytes(), nil
}

// Listens reports whether something accepts connections at a Unix socket in the node.
func (n *Node) Listens(ctx context.Context, socket string) bool {
	conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "unix", filepath.Join("/proc", strconv.Itoa(n.pid), "root", socket))
	if err != nil {
		return false
	}
	_ = conn.Close()
	return true
}
