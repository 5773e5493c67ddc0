package node

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// Remove ends the nodes and switches at or below dir, whoever started them, and
// removes their control groups and files. It may be called any number of times,
// also for what was started by half. The caller holds the state directory's lock.
func Remove(ctx context.Context, dir string) error {
	if err := killAll(ctx, dir); err != nil {
		return err
	}
	var errs []error
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == libDir || d.Name() == etcDir || d.Name() == optDir):
			return fs.SkipDir // thousands of files, and no group is noted there
		case d.Name() == groupsFile:
			errs = append(errs, eventually(ctx, func() error { return removeGroups(filepath.Dir(path)) }))
		}
		return nil
	})
	if err := errors.Join(append(errs, err)...); err != nil {
		return err
	}
	if err := eventually(ctx, func() error { return os.RemoveAll(dir) }); err != nil {
		return fmt.Errorf("removing %s: %w", dir, err)
	}
	return nil
}

// killAll ends the processes, and waits until the kernel has ended all that was
// in their namespaces, too.
func killAll(ctx context.Context, dir string) error {
	for _, p := range processes(dir) {
		if p.word == wordSwitch {
			// The interface would go with its namespace, but some time after it. There may
			// be none yet, or none any more.
			_ = ipIn(ctx, p.pid, "link del "+uplink)
		}
	}
	return eventually(ctx, func() error {
		left := processes(dir)
		for _, p := range left {
			if err := unix.Kill(p.pid, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
				return fmt.Errorf("ending process %d: %w", p.pid, err)
			}
		}
		if len(left) > 0 {
			return fmt.Errorf("%d processes of %s have not ended yet", len(left), dir)
		}
		return nil
	})
}

// eventually does it until it succeeds, or until patience is over.
func eventually(ctx context.Context, do func() error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		err := do()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-tick.C:
		}
	}
}
