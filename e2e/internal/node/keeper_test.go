package node

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// keeperWord makes the test binary keep components, in a process of its own: a
// keeper buries every child, which would be other tests' as well.
const keeperWord = "WEFT_TEST_KEEPER"

func TestMain(m *testing.M) {
	if dir := os.Getenv(keeperWord); dir != "" {
		c, err := loadConfig(filepath.Join(dir, configFile))
		if err != nil {
			panic(err)
		}
		l, err := listen(context.Background(), c.path(socketFile))
		if err != nil {
			panic(err)
		}
		k := newKeeper(c)
		k.logs = dir
		go k.reap(children())
		panic(k.serve(l))
	}
	os.Exit(m.Run())
}

// keep starts a keeper and returns the node that it would be.
func keep(t *testing.T, components ...Component) *Node {
	t.Helper()
	dir, err := os.MkdirTemp("", "weft-keeper-") //nolint:usetesting // a test's own may be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	c := Config{Host: "n1", Dir: dir, Components: components}
	if err := c.save(); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), keeperWord+"="+dir)
	cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cmd.Process.Kill(); err != nil {
			t.Error(err)
		}
		_ = cmd.Wait() // it was killed
	})
	n := &Node{Config: c}
	await(t, n, func(map[string]State) bool { return true })
	return n
}

// await polls until the states are as wanted.
func await(t *testing.T, n *Node, good func(map[string]State) bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var states map[string]State
	err := eventually(ctx, func() error {
		var err error
		if states, err = n.States(ctx); err != nil {
			return err
		}
		if !good(states) {
			return errors.New("not yet")
		}
		return nil
	})
	if err != nil {
		t.Fatalf("%v, states are %+v", err, states)
	}
}

func TestKeeper(t *testing.T) {
	n := keep(t,
		// The shell leaves a process behind when it ends, which is the keeper's to bury.
		Component{Name: "daemon", Path: "/bin/sh", Args: []string{"-c", `(true &) ; echo started; while :; do sleep 1; done`}},
		Component{Name: "stubborn", Path: "/bin/sh", Args: []string{"-c", `trap "" TERM; while :; do sleep 1; done`}},
		Component{Name: "crasher", Path: "/bin/sh", Args: []string{"-c", "exit 1"}},
	)
	ctx := t.Context()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(n.Start(ctx, "daemon", "daemon"))
	await(t, n, func(s map[string]State) bool {
		log, err := os.ReadFile(filepath.Join(n.Dir, "daemon.log"))
		return err == nil && string(log) == "started\n" && s["daemon"].Running && !s["stubborn"].Running
	})

	must(n.Pause(ctx, "daemon"))
	await(t, n, func(s map[string]State) bool { return s["daemon"].Paused })
	must(n.Resume(ctx, "daemon"))
	await(t, n, func(s map[string]State) bool { return !s["daemon"].Paused })

	must(n.Pause(ctx, "daemon"))
	must(n.Stop(ctx, "daemon"))
	await(t, n, func(s map[string]State) bool { return s["daemon"] == State{} })

	must(n.Start(ctx, "stubborn"))
	must(n.Kill(ctx, "stubborn"))
	await(t, n, func(s map[string]State) bool { return s["stubborn"] == State{} })

	must(n.Start(ctx, "crasher"))
	await(t, n, func(s map[string]State) bool { return s["crasher"].Restarts > 0 })
	must(n.Kill(ctx, "crasher"))

	if err := n.Start(ctx, "nothing"); err == nil {
		t.Error("a component that doesn't exist was started")
	}
}
