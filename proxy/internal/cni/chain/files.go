package chain

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// temporary files begin and end like this: no reader of configurations takes
// them for one, and those of a process that died are recognised.
const tempPrefix, tempSuffix = ".weft-cni-", ".tmp"

// replace writes a file whole: another reader sees the old one or the new one.
// If before is given, the file must still be that one.
func replace(path string, content []byte, mode fs.FileMode, before *seen) error {
	dir := filepath.Dir(path)
	tmp, err := os.CreateTemp(dir, tempPrefix+"*"+tempSuffix)
	if err != nil {
		if p, ok := errors.AsType[*fs.PathError](err); ok {
			err = p.Err // its path differs each time, and the same problem is told once
		}
		return fmt.Errorf("writing in %s: %w", dir, err)
	}
	defer func() { _ = os.Remove(tmp.Name()) }() // gone already if all went well
	_, err = tmp.Write(content)
	if err = errors.Join(err, tmp.Chmod(mode), tmp.Sync(), tmp.Close()); err != nil {
		return err
	}
	if before != nil && !before.still(path) {
		return fmt.Errorf("%s: %w", path, errRewritten)
	}
	if err := os.Rename(tmp.Name(), path); err != nil {
		return err
	}
	return syncDir(dir)
}

// errRewritten is what another agent's write between our read and ours is; the
// next round takes its content.
var errRewritten = errors.New("another agent has just rewritten it")

// syncDir makes a rename outlive a power cut.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	err = d.Sync()
	_ = d.Close() // only read
	return err
}

// seen is a file as it was read.
type seen struct {
	info    fs.FileInfo
	content []byte
}

// read reads a regular file; links and others' devices are not followed.
func read(path string) (*seen, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	const largest = 4 << 20
	if !info.Mode().IsRegular() || info.Size() > largest {
		return nil, fmt.Errorf("%s is not a regular file of at most %d bytes", path, largest)
	}
	content, err := os.ReadFile(path)
	return &seen{info, content}, err
}

func (s *seen) still(path string) bool {
	info, err := os.Lstat(path)
	return err == nil && os.SameFile(info, s.info) && info.ModTime().Equal(s.info.ModTime()) && info.Size() == s.info.Size()
}

// configurations are the names in dir that a runtime reads, in its order, and
// the temporary files of processes that died.
func configurations(dir string) (names, stale []string, err error) {
	entries, err := os.ReadDir(dir) // sorted
	for _, e := range entries {
		name := e.Name()
		switch {
		case strings.HasPrefix(name, tempPrefix) && strings.HasSuffix(name, tempSuffix):
			stale = append(stale, name)
		case e.Type().IsRegular() && extension(name) != "":
			names = append(names, name)
		}
	}
	return names, stale, err
}

// extension is the name's, if runtimes read such files.
func extension(name string) string {
	switch ext := filepath.Ext(name); ext {
	case ".conf", ".conflist", ".json":
		return ext
	}
	return ""
}

// isSingle tells files that hold one configuration, not a list.
func isSingle(name string) bool { return extension(name) != ".conflist" }

// listName is where the list goes that is made of a single configuration: where
// Linkerd's installer puts it or, if somebody else has a list there, beside it
// and before it.
func listName(dir, name string) string {
	usual := strings.TrimSuffix(name, extension(name)) + ".conflist"
	there, err := read(filepath.Join(dir, usual))
	if errors.Is(err, fs.ErrNotExist) || err == nil && bytes.Contains(there.content, quote(origin)) {
		return usual
	}
	return name + ".conflist"
}
