package cluster

import (
	"context"
	"errors"
	"os"
	"os/signal"

	"golang.org/x/sys/unix"

	"github.com/weftmesh/weft/e2e/internal/node"
)

// Main is the first thing that a program calls which clusters are started from:
// it is true if the program was started as a part of one, and had no other
// purpose. args are without the program's name.
func Main(ctx context.Context, args []string) (bool, error) {
	if len(args) == 1 && args[0] == pauseWord {
		return true, pause()
	}
	return node.Main(ctx, args)
}

// pause is PID 1 of a pod: it holds the namespaces, buries orphans, and ends when
// it is asked to.
func pause() error {
	c := make(chan os.Signal, 8)
	signal.Notify(c, unix.SIGINT, unix.SIGTERM, unix.SIGCHLD)
	for s := range c {
		if s != unix.SIGCHLD {
			return nil
		}
		for {
			pid, err := unix.Wait4(-1, nil, unix.WNOHANG, nil)
			if pid <= 0 || err != nil && !errors.Is(err, unix.EINTR) {
				break
			}
		}
	}
	return nil
}
