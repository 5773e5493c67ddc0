package dir

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weftmesh/weft/services/watcher/internal/shape"
	"github.com/weftmesh/weft/services/watcher/internal/source"
)

// file is the last good reading of one manifest.
type file struct {
	stamp stamp
	// since is when this stamp was first seen.
	since  time.Time
	read   time.Time
	items  []Item
	strays []string
	// trouble says why the newest reading is not the one in use.
	trouble string
	// loaded: items come from a reading of the whole file.
	loaded bool
}

// files is everything that was read, and the merged view of it. It is used by
// one goroutine; what it hands out never changes.
type files struct {
	byPath map[string]*file
	order  []string
	settle time.Duration // Config's
}

// update reads what has changed since the last look. forced are files and
// directories to which something happened: they, and the files in them, are read
// whatever their stamps say.
// again is set when a file should be looked at once more after settle.
func (fs *files) update(w *walk, forced map[string]bool, now time.Time) (again bool) {
	exists := make(map[string]bool, len(w.files))
	order := make([]string, 0, len(w.files))
	for _, f := range w.files {
		if exists[f.path] {
			continue
		}
		exists[f.path] = true
		order = append(order, f.path)
		old := fs.byPath[f.path]
		if old != nil && old.trouble == "" && old.stamp == f.stamp && !forced[f.path] && !forced[filepath.Dir(f.path)] &&
			!old.suspect(f.stamp, len(forced) > 0) {
			continue
		}
		next, wait := reread(f, old, now, fs.settle)
		if next == nil { // vanished since the walk
			order = order[:len(order)-1]
			delete(exists, f.path)
			continue
		}
		again = again || wait
		fs.byPath[f.path] = next
	}
	for path := range fs.byPath {
		if exists[path] {
			continue
		}
		if w.unknown(path) {
			order = append(order, path)
			continue
		}
		delete(fs.byPath, path)
	}
	fs.order = order
	return again
}

// unknown tells whether a path lies where the walk could not look.
func (w *walk) unknown(path string) bool {
	for dir := range w.blind {
		if path == dir || strings.HasPrefix(path, dir+string(filepath.Separator)) {
			return true
		}
	}
	return false
}

// reread reads a file, keeping the objects of the old reading where the new one
// can't be used.
func reread(f found, old *file, now time.Time, settle time.Duration) (next *file, again bool) {
	data, err := readFile(f.path)
	if os.IsNotExist(err) {
		return nil, false
	}
	next = &file{stamp: f.stamp, since: now, read: now}
	if old != nil && old.stamp == f.stamp {
		next.since = old.since
	}
	if err != nil {
		next.trouble = reason(err)
		next.keep(old)
		return next, false
	}
	p := Parse(data)
	next.items, next.strays = p.Items, p.Strays
	switch {
	case p.Broken != nil:
		next.trouble = p.Broken.Error()
		if old != nil && old.loaded {
			next.keep(old)
		}
	case old != nil && next.unsettled(now, settle) && lost(old.items, p.Items):
		next.keep(old)
		next.read = time.Time{} // read it again whatever its stamp
		return next, true
	default:
		next.loaded = true
		if old != nil && same(old.items, next.items) {
			next.items = old.items
		}
	}
	return next, false
}

// suspect tells whether the file may have been written again within the clock
// tick of the last reading. Where events come they say so, and looking at them
// would cost a busy directory two seconds' files for each change; the next look
// without an event makes sure.
func (f *file) suspect(s stamp, event bool) bool {
	const tick = 2 * time.Second // the coarsest that file systems have
	return f.read.IsZero() || !event && f.read.Sub(s.mod) <= tick && f.read.Sub(f.since) <= tick
}

// unsettled tells whether the file may still be in the middle of being written.
// A time of change that lies in the future says nothing: clocks differ.
func (f *file) unsettled(now time.Time, settle time.Duration) bool {
	return now.Sub(f.stamp.mod) < settle && now.Sub(f.since) < settle
}

func (f *file) keep(old *file) {
	if old == nil {
		return
	}
	f.items, f.strays, f.loaded = old.items, old.strays, old.loaded
}

// lost tells whether an object of the old reading is missing from the new one.
func lost(old, next []Item) bool {
	in := make(map[shape.ID]bool, len(next))
	for _, it := range next {
		in[it.ID] = true
	}
	return slices.ContainsFunc(old, func(it Item) bool { return !in[it.ID] })
}

// same keeps the old objects of a file that was touched and not changed.
func same(old, next []Item) bool {
	return slices.EqualFunc(old, next, func(a, b Item) bool { return a.ID == b.ID && equal(a.Obj, b.Obj) })
}

// merged is the view of all files together.
type merged struct {
	objects map[shape.ID]metav1.Object
	trouble source.Trouble
}

func (fs *files) merge(w *walk) *merged {
	m := &merged{objects: make(map[shape.ID]metav1.Object)}
	skip := func(object, reason string) {
		m.trouble.Skipped = append(m.trouble.Skipped, source.Skipped{Object: object, Reason: reason})
	}
	for path, reason := range w.blind {
		skip(path, reason)
		m.trouble.Blind = m.trouble.Blind || !fs.below(path)
	}
	from := make(map[shape.ID]string)
	for _, path := range fs.order {
		f := fs.byPath[path]
		if f.trouble != "" {
			skip(path, f.trouble)
			m.trouble.Blind = m.trouble.Blind || !f.loaded
		}
		for _, s := range f.strays {
			skip(path, s)
		}
		for _, it := range f.items {
			if first, twice := from[it.ID]; twice {
				skip(it.ID.String(), "is in "+first+" and in "+path+"; the first one counts")
				continue
			}
			from[it.ID] = path
			m.objects[it.ID] = it.Obj
		}
	}
	slices.SortFunc(m.trouble.Skipped, func(a, b source.Skipped) int {
		return strings.Compare(a.Object+"\x00"+a.Reason, b.Object+"\x00"+b.Reason)
	})
	return m
}

// below tells whether files were read in a directory before it became
// unreadable: then what it held is known and kept.
func (fs *files) below(dir string) bool {
	return slices.ContainsFunc(fs.order, func(path string) bool {
		return path == dir || strings.HasPrefix(path, dir+string(filepath.Separator))
	})
}

// readFile reads at most one byte more than Parse accepts.
func readFile(path string) ([]byte, error) {
	// It was a regular file a moment ago. Should it be a FIFO now, opening it must
	// not wait for a writer.
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // only read
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("is no regular file")
	}
	return io.ReadAll(io.LimitReader(f, maxFile+1))
}
