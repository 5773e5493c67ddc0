// Package feed keeps the annotations of namespaces as the bus has them.
//
// One goroutine runs Run; any number of requests ask Annotations. A map that
// was handed out is never changed.
package feed

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/weftmesh/weft/bus"
	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
	"github.com/weftmesh/weft/services/kit/obs"
)

// log is what is read: bus.Reader, or a test's.
type log interface {
	Read(ctx context.Context) iter.Seq2[bus.Cut, error]
}

// Wait is how long a request waits for a namespace that is not known yet: a pod
// may follow its new namespace faster than the bus. The API server gives a
// webhook 10 s.
const Wait = 3 * time.Second

// maxWaiting is how many requests wait at once; more are told at once that the
// namespace is unknown. Anybody in the cluster can ask about one that never was,
// and those who do must not take all the turns of those who don't.
const maxWaiting = 64

// Tables are those that a feed reads. Nothing of pods is among them, so memory
// does not follow their number.
func Tables() []busv1.Table { return []busv1.Table{busv1.Table_TABLE_NAMESPACES} }

// ErrUnknown means that the bus has not told of a namespace.
var ErrUnknown = errors.New("the mesh's bus has not told of it yet; try again in a moment")

// Feed is the table of namespaces.
type Feed struct {
	// Gone, if set before Run, is told the name of each namespace that ends.
	Gone func(namespace string)

	log     log
	wait    time.Duration
	waiting chan struct{} // one for each request that waits for a namespace

	mu      sync.Mutex
	rows    map[string]map[string]string
	changed chan struct{} // closed and replaced at each change
}

// New makes a feed of what log reads.
func New(log log) *Feed {
	return &Feed{log: log, wait: Wait, waiting: make(chan struct{}, maxWaiting), rows: map[string]map[string]string{}, changed: make(chan struct{})}
}

// Run applies cuts until ctx ends.
func (f *Feed) Run(ctx context.Context) error {
	for cut, err := range f.log.Read(ctx) {
		if err != nil {
			return fmt.Errorf("reading namespaces: %w", err)
		}
		f.apply(cut)
	}
	return context.Cause(ctx)
}

func (f *Feed) apply(cut bus.Cut) {
	for _, key := range f.change(cut) {
		if parts := bus.Parts(key); len(parts) == 1 && f.Gone != nil {
			f.Gone(parts[0])
		}
	}
}

// change applies a cut and gives the keys of what is gone.
func (f *Feed) change(cut bus.Cut) (gone []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if cut.Complete {
		f.rows = map[string]map[string]string{}
	}
	for _, c := range cut.Changes {
		if c.Table != busv1.Table_TABLE_NAMESPACES {
			continue
		}
		if c.Value == nil {
			delete(f.rows, c.Key)
			gone = append(gone, c.Key)
			continue
		}
		row := &busv1.Namespace{}
		if err := proto.Unmarshal(c.Value, row); err != nil {
			slog.Error("namespace row cannot be read", obs.Object(c.Key), obs.Error(err))
			continue
		}
		f.rows[c.Key] = row.GetAnnotations()
	}
	close(f.changed)
	f.changed = make(chan struct{})
	return gone
}

// Annotations gives a namespace's annotations, waiting a little for one that is
// not known: an unknown namespace is not one without annotations, and taking it
// for that would start a pod without its proxy.
func (f *Feed) Annotations(ctx context.Context, namespace string) (map[string]string, error) {
	row, changed, ok := f.row(namespace)
	if ok {
		return row, nil
	}
	unknown := fmt.Errorf("looking up the annotations of namespace %.253s: %w", namespace, ErrUnknown)
	select {
	case f.waiting <- struct{}{}:
		defer func() { <-f.waiting }()
	default:
		return nil, unknown
	}
	ctx, cancel := context.WithTimeout(ctx, f.wait)
	defer cancel()
	for {
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, unknown
		}
		if row, changed, ok = f.row(namespace); ok {
			return row, nil
		}
	}
}

// row is what is known of a namespace, and what is closed when more is.
func (f *Feed) row(namespace string) (annotations map[string]string, changed <-chan struct{}, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	annotations, ok = f.rows[bus.Key(namespace)]
	return annotations, f.changed, ok
}

// None is for a mesh without a bus: no namespace has annotations.
type None struct{}

// Annotations gives nothing.
func (None) Annotations(context.Context, string) (map[string]string, error) { return nil, nil }
