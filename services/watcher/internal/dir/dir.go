package dir

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fsnotify/fsnotify"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weftmesh/weft/services/watcher/internal/shape"
	"github.com/weftmesh/weft/services/watcher/internal/source"
)

// Config says what is read.
type Config struct {
	// Paths are the directories, the earlier ones winning.
	Paths []string
	// Derive makes endpoints from Services and Pods where no slice is given.
	Derive bool
	// Debounce is how long a burst of file events is collected; 0 means 20 ms.
	Debounce time.Duration
	// Settle is how old a file's last write must be before objects missing from
	// it count as deleted: a half-written file may well be good YAML. 0 means
	// 100 ms.
	Settle time.Duration
	// Rescan is how often everything is looked at without any event, which file
	// systems may lose; 0 means 5 s.
	Rescan time.Duration
	// Log may be nil.
	Log *slog.Logger
}

// Source reads objects from directories.
type Source struct {
	cfg    Config
	queue  *source.Queue
	synced chan struct{}
	once   sync.Once
	files  files
	now    atomic.Pointer[view]
	// watched are the directories that fsnotify watches.
	watched map[string]bool
	deaf    bool
}

// view is everything that exists, by kind and namespace. It never changes.
type view struct {
	*merged
	lists map[list][]metav1.Object
}

type list struct {
	kind      shape.Kind
	namespace string
}

var _ source.Source = (*Source)(nil)

// New makes a source; Run reads.
func New(cfg Config) *Source {
	if cfg.Debounce <= 0 {
		cfg.Debounce = 20 * time.Millisecond
	}
	if cfg.Settle <= 0 {
		cfg.Settle = 100 * time.Millisecond
	}
	if cfg.Rescan <= 0 {
		cfg.Rescan = 5 * time.Second
	}
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	s := &Source{
		cfg:     cfg,
		queue:   source.NewQueue(),
		synced:  make(chan struct{}),
		files:   files{byPath: make(map[string]*file), settle: cfg.Settle},
		watched: make(map[string]bool),
	}
	s.now.Store(&view{merged: new(merged)})
	return s
}

// Changes names objects that may have changed.
func (s *Source) Changes() *source.Queue { return s.queue }

// Synced is closed after the first look at all directories.
func (s *Source) Synced() <-chan struct{} { return s.synced }

// Derives tells whether endpoints are to be derived.
func (s *Source) Derives() bool { return s.cfg.Derive }

// Get finds an object.
func (s *Source) Get(id shape.ID) metav1.Object {
	if obj, ok := s.now.Load().objects[id]; ok {
		return obj
	}
	return nil
}

// List calls each with the objects of one kind and namespace, by name.
func (s *Source) List(kind shape.Kind, namespace string, each func(metav1.Object)) {
	for _, obj := range s.now.Load().lists[list{kind, namespace}] {
		each(obj)
	}
}

// Trouble lists the files that could not be read.
func (s *Source) Trouble() source.Trouble { return s.now.Load().trouble }

// Elect leads at once and for as long as ctx lasts: there is nobody to share
// the directories with.
func (s *Source) Elect(ctx context.Context, lead func(context.Context, func() error)) error {
	lead(ctx, func() error { return nil })
	<-ctx.Done()
	return nil
}

// Events that never stop should cost a quarter of a core: after a look the source
// rests for three times as long as it took, but not for more than 0.3 s.
const (
	rest     = 3
	longLook = 100 * time.Millisecond
)

// Run reads the directories until ctx ends.
func (s *Source) Run(ctx context.Context) error {
	events, err := fsnotify.NewWatcher()
	if err != nil {
		s.cfg.Log.Warn("file events are not available; directories are looked at from time to time", "error", err, "every", s.cfg.Rescan)
		events = &fsnotify.Watcher{} // nil channels never fire
		s.deaf = true
	} else {
		defer events.Close() //nolint:errcheck // the process ends
	}
	rescan := time.NewTicker(s.cfg.Rescan)
	defer rescan.Stop()

	var (
		forced = make(map[string]bool)
		since  time.Time // the first event not looked into yet
		due    <-chan time.Time
		rested time.Time // when looking again is cheap enough
	)
	scan := func() {
		began := time.Now()
		again := s.scan(events, forced, since)
		rested = time.Now().Add(rest * min(time.Since(began), longLook))
		clear(forced)
		since, due = time.Time{}, nil
		if again {
			due = time.After(s.cfg.Settle)
		}
	}
	scan()
	s.once.Do(func() { close(s.synced) })
	for {
		select {
		case <-ctx.Done():
			return nil
		case e, ok := <-events.Events:
			if !ok {
				return errors.New("watching directories: the event stream ended")
			}
			if e.Op == fsnotify.Chmod {
				continue
			}
			forced[e.Name] = true
			if since.IsZero() {
				since = time.Now()
				due = time.After(max(s.cfg.Debounce, time.Until(rested)))
			}
		case err, ok := <-events.Errors:
			if !ok {
				return errors.New("watching directories: the error stream ended")
			}
			// An overflow lost events: look at everything.
			s.cfg.Log.Warn("file events were lost", "error", err)
			for dir := range s.watched {
				forced[dir] = true
			}
			scan()
		case <-due:
			scan()
		case <-rescan.C:
			scan()
		}
	}
}

// scan looks at everything and names what is different.
func (s *Source) scan(events *fsnotify.Watcher, forced map[string]bool, since time.Time) (again bool) {
	if since.IsZero() {
		since = time.Now()
	}
	w := look(s.cfg.Paths)
	// Watch first, then look again where the watch is new: a file that came in
	// between is not missed.
	if s.watch(events, w.dirs, forced) {
		w = look(s.cfg.Paths)
	}
	again = s.files.update(w, forced, time.Now())
	m := s.files.merge(w)
	old := s.now.Load()
	s.now.Store(index(m))
	for id, obj := range m.objects {
		if was, ok := old.objects[id]; !ok || was != obj {
			s.queue.Add(id, since)
		}
	}
	for id := range old.objects {
		if _, ok := m.objects[id]; !ok {
			s.queue.Add(id, since)
		}
	}
	if !slices.Equal(old.trouble.Skipped, m.trouble.Skipped) || old.trouble.Blind != m.trouble.Blind {
		s.queue.Wake()
	}
	return again
}

func index(m *merged) *view {
	v := &view{merged: m, lists: make(map[list][]metav1.Object)}
	for id, obj := range m.objects {
		at := list{id.Kind, id.Namespace}
		v.lists[at] = append(v.lists[at], obj)
	}
	for _, objs := range v.lists {
		slices.SortFunc(objs, func(a, b metav1.Object) int {
			switch {
			case a.GetName() < b.GetName():
				return -1
			case a.GetName() > b.GetName():
				return 1
			}
			return 0
		})
	}
	return v
}

// watch asks for events of exactly the directories that exist; fresh is set
// when there are new ones.
func (s *Source) watch(events *fsnotify.Watcher, dirs []string, forced map[string]bool) (fresh bool) {
	if s.deaf {
		return false
	}
	exist := make(map[string]bool, len(dirs))
	for _, dir := range dirs {
		exist[dir] = true
		if s.watched[dir] && !forced[dir] && !forced[filepath.Dir(dir)] {
			continue
		}
		// Adding again is harmless and needed when the directory was replaced.
		if err := events.Add(dir); err != nil {
			s.cfg.Log.Warn("directory is looked at from time to time only", "directory", dir, "error", err)
			continue
		}
		fresh = fresh || !s.watched[dir]
		s.watched[dir] = true
		forced[dir] = true
	}
	for dir := range s.watched {
		if !exist[dir] {
			delete(s.watched, dir)
			_ = events.Remove(dir) // gone with the directory, most likely
		}
	}
	return fresh
}

// equal compares decoded objects, which hold no functions or cycles.
func equal(a, b metav1.Object) bool { return reflect.DeepEqual(a, b) }
