package node

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"runtime"

	"golang.org/x/sys/unix"
)

// enter makes the control group namespace, whose root is the group that the
// process was put into, and becomes the node's init.
func enter(config string) error {
	if err := waitGate(); err != nil {
		return err
	}
	runtime.LockOSThread() // a namespace belongs to the thread, and exec goes on with the one that calls it
	if err := unix.Unshare(unix.CLONE_NEWCGROUP); err != nil {
		return fmt.Errorf("making a control group namespace: %w", err)
	}
	program, err := os.Executable()
	if err != nil {
		return fmt.Errorf("finding the program: %w", err)
	}
	if err := unix.Exec(program, []string{os.Args[0], wordInit, config}, os.Environ()); err != nil {
		return fmt.Errorf("becoming init: %w", err)
	}
	return nil
}

// runInit is PID 1 of a node. Its end is the end of everything in the node.
func runInit(ctx context.Context, config string) error {
	c, err := loadConfig(config)
	if err != nil {
		return err
	}
	groups, err := ownHierarchies() // before the mounts are covered
	if err != nil {
		return err
	}
	if err := unix.Sethostname([]byte(c.Host)); err != nil {
		return fmt.Errorf("setting the host name: %w", err)
	}
	l, err := listen(ctx, c.path(socketFile)) // before the directory may be covered
	if err != nil {
		return err
	}
	if err := connect(ctx, c); err != nil {
		return err
	}
	if err := private(c, groups); err != nil {
		return err
	}
	keep := newKeeper(c)
	go keep.reap(children())
	return keep.serve(l)
}

// children tells of ended processes, those included that lost their parent.
func children() <-chan os.Signal {
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, unix.SIGCHLD)
	return ended
}
