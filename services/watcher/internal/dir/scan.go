package dir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Limits of what is looked at below the roots.
const (
	maxFiles = 20_000
	maxDepth = 16
)

// found is one manifest that exists.
type found struct {
	path  string
	stamp stamp
}

// stamp changes whenever a file is written or replaced, save for two writes of
// equal size within the file system's clock tick.
type stamp struct {
	size int64
	mod  time.Time
	id   fileID
}

// walk is one look at the directories: which manifests and directories exist,
// and what could not be looked at.
type walk struct {
	files []found
	dirs  []string
	// blind are directories whose contents are unknown, with the reason.
	blind map[string]string
	full  bool
}

// look walks the roots in order; within one, paths are in lexical order. That
// is the order in which the first definition of an object wins.
func look(roots []string) *walk {
	w := &walk{blind: make(map[string]string)}
	for _, root := range roots {
		w.dir(filepath.Clean(root), nil, true)
	}
	if w.full {
		w.blind[roots[0]] = fmt.Sprintf("more than %d manifests; the rest is not read", maxFiles)
	}
	return w
}

// dir looks into one directory. above are the real directories on the way here,
// so that a symbolic link to one of them is not followed for ever.
func (w *walk) dir(path string, above []os.FileInfo, root bool) {
	self, err := os.Stat(path)
	if err == nil && !self.IsDir() {
		err = errors.New("is no directory")
	}
	if err == nil && len(above) == maxDepth {
		err = fmt.Errorf("is more than %d directories deep", maxDepth)
	}
	var entries []os.DirEntry
	if err == nil {
		if slices.ContainsFunc(above, func(a os.FileInfo) bool { return os.SameFile(a, self) }) {
			return
		}
		entries, err = os.ReadDir(path)
	}
	if err != nil {
		// A subdirectory that vanished is gone with what it held. A root that is
		// not there is a mistake or a lost mount, and its objects are unknown.
		if root || !errors.Is(err, fs.ErrNotExist) {
			w.blind[path] = reason(err)
		}
		return
	}
	w.dirs = append(w.dirs, path)
	above = append(slices.Clip(above), self)
	for _, e := range entries {
		// Hidden files, and the ..data directories of a mounted ConfigMap, whose
		// files are linked to from beside it.
		if strings.HasPrefix(e.Name(), ".") {
			continue
		}
		w.entry(filepath.Join(path, e.Name()), above)
	}
}

func (w *walk) entry(path string, above []os.FileInfo) {
	info, err := os.Stat(path) // follows links
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			w.blind[path] = reason(err)
		}
		return
	}
	if info.IsDir() {
		w.dir(path, above, false)
		return
	}
	if !manifest(path) || !info.Mode().IsRegular() {
		return
	}
	if len(w.files) >= maxFiles {
		w.full = true
		return
	}
	w.files = append(w.files, found{path, stampOf(info)})
}

func stampOf(info os.FileInfo) stamp {
	return stamp{size: info.Size(), mod: info.ModTime(), id: idOf(info)}
}

func manifest(path string) bool {
	switch strings.ToLower(filepath.Ext(path)) {
	case ".yaml", ".yml", ".json":
		return true
	}
	return false
}

// reason is an error without the path, which is named beside it.
func reason(err error) string {
	if pathErr, ok := errors.AsType[*fs.PathError](err); ok {
		return pathErr.Err.Error()
	}
	return oneLine(err)
}
