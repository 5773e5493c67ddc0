package cluster

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/weftmesh/weft/e2e/internal/node"
)

// Down ends the cluster of the name and removes it; without a name it ends
// everything in the state directory. The network goes with the last cluster. It
// may be called any number of times, and after a start that was broken off.
func Down(ctx context.Context, o Options) error {
	everything := o.Name == ""
	o, err := o.fill()
	if err != nil {
		return err
	}
	if _, err := os.Stat(o.Dir); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	unlock, err := lock(o.Dir)
	if err != nil {
		return err
	}
	defer unlock()
	names := []string{o.Name}
	if everything {
		if names, err = clusters(o.Dir); err != nil {
			return err
		}
	}
	for _, name := range names {
		if err := node.Remove(ctx, filepath.Join(o.Dir, name)); err != nil {
			return err
		}
		o.Progress("cluster " + name + " is gone")
	}
	left, err := clusters(o.Dir)
	if err != nil || len(left) > 0 {
		return err
	}
	for _, name := range []string{node.SwitchName, programDir} {
		if err := node.Remove(ctx, filepath.Join(o.Dir, name)); err != nil {
			return err
		}
	}
	if err := os.Remove(filepath.Join(o.Dir, lockFile)); err != nil {
		return fmt.Errorf("removing the lock: %w", err)
	}
	// Whoever made the directory may keep other things in it.
	_ = os.Remove(o.Dir)
	return nil
}

// clusters lists the directories of clusters, also of those that have no more in
// them than a name.
func clusters(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("listing clusters: %w", err)
	}
	var out []string
	for _, e := range entries {
		if _, err := os.Stat(filepath.Join(dir, e.Name(), clusterFile)); err == nil {
			out = append(out, e.Name())
		}
	}
	return out, nil
}
