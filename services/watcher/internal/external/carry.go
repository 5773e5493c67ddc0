package external

import (
	"context"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/weftmesh/weft/services/kit/obs"
	"github.com/weftmesh/weft/services/watcher/internal/shape"
)

// wait is why a Service is not looked at now.
type wait struct {
	// shown tell whether the watch shows what was written last; none if nothing was.
	shown []func() bool
	until time.Time
	fails int
}

// What is done to a slice.
const (
	doneCreated = "created"
	doneUpdated = "updated"
	doneDeleted = "deleted"
)

// due tells whether a Service may be looked at: what was written for it shows, and
// what was refused has waited.
func (c *Controller) due(id shape.ID, now time.Time) bool {
	w := c.waiting[id]
	if w == nil || !now.Before(w.until) {
		return true
	}
	return len(w.shown) > 0 && !slices.ContainsFunc(w.shown, func(shown func() bool) bool { return !shown() })
}

// carryOut writes what is planned for one Service. The next look waits until the
// watch shows it: by what it shows now, the same would be done once more.
func (c *Controller) carryOut(ctx context.Context, check func() error, id shape.ID, p Plan) {
	w := &wait{until: time.Now().Add(showLimit)}
	var failed error
	note := func(done string, err error, name, version string) {
		result := "ok"
		switch {
		case err == nil:
			w.shown = append(w.shown, c.shows(id.Namespace, name, done, version))
		case apierrors.IsConflict(err) || apierrors.IsNotFound(err):
			result = "failed"
			w.until = time.Now().Add(afterConflict)
			w.shown = append(w.shown, func() bool { return false })
		default:
			result, failed = "failed", err
		}
		c.writes.WithLabelValues(done, result).Inc()
	}
	// First what adds: an address is never away in between.
	for _, es := range p.Create {
		if check() != nil || failed != nil {
			break
		}
		var name string
		err := c.write(ctx, func(ctx context.Context) (err error) { name, err = c.writer.Create(ctx, es); return err })
		note(doneCreated, err, name, "")
	}
	for _, es := range p.Update {
		if check() != nil || failed != nil {
			break
		}
		note(doneUpdated, c.write(ctx, func(ctx context.Context) error { return c.writer.Update(ctx, es) }), es.Name, es.ResourceVersion)
	}
	for _, name := range p.Delete {
		if check() != nil || failed != nil {
			break
		}
		note(doneDeleted, c.write(ctx, func(ctx context.Context) error { return c.writer.Delete(ctx, id.Namespace, name) }), name, "")
	}
	c.settle(ctx, id, w, failed)
}

func (c *Controller) write(ctx context.Context, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	return do(ctx)
}

// shows tells later whether the watch shows what was done to a slice.
func (c *Controller) shows(namespace, name, done, version string) func() bool {
	id := shape.ID{Kind: shape.EndpointSlice, Namespace: namespace, Name: name}
	return func() bool {
		obj := c.objects.Get(id)
		switch done {
		case doneCreated:
			return obj != nil
		case doneUpdated:
			return obj == nil || obj.GetResourceVersion() != version
		}
		return obj == nil
	}
}

// settle notes what the next look at a Service waits for.
func (c *Controller) settle(ctx context.Context, id shape.ID, w *wait, failed error) {
	if failed == nil || ctx.Err() != nil {
		c.waiting[id] = w
		c.refused.Over()
		return
	}
	if old := c.waiting[id]; old != nil {
		w.fails = old.fails
	}
	w.shown = nil
	w.until = time.Now().Add(min(maxBackoff, firstBackoff<<min(w.fails, maxDoublings)))
	w.fails++
	c.waiting[id] = w
	c.refused.Hear(failed, obs.Object(id.String()))
}

const (
	writeTimeout = 5 * time.Second
	// showLimit is how long the watch may take to show what was written, before the
	// Service is looked at again all the same.
	showLimit = 30 * time.Second
	// A Service whose slices are refused waits for ever longer. (Linkerd drops it
	// after 15 times, until something about it changes.)
	firstBackoff = time.Second
	maxBackoff   = 5 * time.Minute
	maxDoublings = 9
	// afterConflict is when what has changed in between is decided on anew.
	afterConflict = time.Second
)
