package node

import (
	"errors"
	"fmt"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/weftmesh/weft/services/kit/say"
)

// Possible says in a say.Problem why nodes with their state below dir can't run
// on this machine; nil means that nothing is known against it.
func Possible(dir string) error {
	if _, err := ownHierarchies(); err != nil {
		return err
	}
	kind, err := fileSystem(dir)
	if err != nil {
		return err
	}
	if kind == unix.OVERLAYFS_SUPER_MAGIC {
		return &say.Problem{
			What: "a cluster can't keep its state in " + dir,
			Why:  "it is in an overlay, as a container's own files are, and the layers of its containers can't be laid over that",
			Next: "name a directory of another file system (a volume) with -dir",
		}
	}
	return nil
}

// fileSystem is the kind of the file system that the directory will be in.
func fileSystem(dir string) (int64, error) {
	for {
		var s unix.Statfs_t
		err := unix.Statfs(dir, &s)
		if err == nil {
			return int64(s.Type), nil // its type differs between architectures
		}
		if !errors.Is(err, unix.ENOENT) || dir == filepath.Dir(dir) {
			return 0, fmt.Errorf("looking at the file system of %s: %w", dir, err)
		}
		dir = filepath.Dir(dir)
	}
}
