// Package source is what the two places where Kubernetes objects come from, an
// API server and directories of manifests, have in common.
//
// A source names objects that may have changed and shows what each one is now.
// It never hands out an object and then changes it, and naming an object never
// waits for whoever listens: names are kept in a queue, each at most once.
package source

import (
	"context"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weftmesh/weft/services/watcher/internal/shape"
)

// Source is a place where objects come from.
type Source interface {
	// Run reads until ctx ends.
	Run(ctx context.Context) error
	// Changes are the names of what may have changed.
	Changes() *Queue
	// Synced is closed when the complete list is in: every object that exists
	// has been named, and Get and List know it.
	Synced() <-chan struct{}
	// Get is an object as it is now; nil when there is none.
	Get(id shape.ID) metav1.Object
	// List calls each with every object of a kind in a namespace.
	List(kind shape.Kind, namespace string, each func(metav1.Object))
	// Derives tells whether endpoints must be derived from Services and Pods
	// where no slice was given, because no controller makes slices here.
	Derives() bool
	// Trouble lists what could not be read at all.
	Trouble() Trouble
	// Elect calls lead when this process may write, with a context that ends
	// when it may no longer; after that it waits for its turn again. It returns
	// when ctx ends. check tells, just before a write, whether leadership holds.
	Elect(ctx context.Context, lead func(ctx context.Context, check func() error)) error
}

// Trouble is what a source could not read.
type Trouble struct {
	// Skipped names what was skipped (a file, the second definition of an
	// object) and why.
	Skipped []Skipped
	// Blind: something could not be read that may hold objects that were never
	// seen by this process. What is missing is then unknown, not gone.
	Blind bool
	// Unread are kinds of which nothing could be read so far. What there is of
	// them is unknown, too.
	Unread []shape.Kind
}

// Hides tells whether objects of a kind may exist that were never seen.
func (t Trouble) Hides(kind shape.Kind) bool {
	return t.Blind || slices.Contains(t.Unread, kind)
}

// Skipped is one thing that was skipped.
type Skipped struct{ Object, Reason string }
