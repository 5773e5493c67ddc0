package status

import (
	"context"
	"errors"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/weftmesh/weft/bus"
	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
	"github.com/weftmesh/weft/services/kit/obs"
	"github.com/weftmesh/weft/services/watcher/internal/shape"
)

// routeKinds are those whose status lists parents.
var routeKinds = []shape.Kind{shape.PolicyHTTPRoutes, shape.HTTPRoutes, shape.GRPCRoutes, shape.TLSRoutes, shape.TCPRoutes}

// job is one status to write.
type job struct {
	id      shape.ID
	version string // of the object that it was decided on
	patch   []byte
}

// jobs works out what must be written for the statuses to be as wanted. An object
// that is not the one, or not in the version, that policy judged waits until both
// sides know the same.
func (w *Writer) jobs(wanted bus.Wanted, now time.Time) []job {
	var jobs []job
	known := make(map[shape.ID]bool, len(wanted.Statuses))
	replicas, all := w.replicas.reached(now)
	for _, s := range wanted.Statuses {
		kind, ok := shape.KindOf(s.GetGroup(), s.GetKind())
		if !ok {
			continue
		}
		id := shape.ID{Kind: kind, Namespace: s.GetNamespace(), Name: s.GetName()}
		known[id] = true
		served := w.seen.served(id, s.GetGeneration(), point{wanted.Epoch, wanted.Seq}, replicas, all)
		if j, ok := w.job(id, s, served, now); ok {
			jobs = append(jobs, j)
		}
	}
	// What no parent of ours is named by any more keeps no entry of ours.
	for _, kind := range routeKinds {
		for obj := range w.objects.All(kind) {
			id := shape.IDOf(kind, obj)
			if known[id] {
				continue
			}
			if j, ok := w.job(id, &busv1.Status{Generation: obj.GetGeneration()}, 0, now); ok {
				jobs = append(jobs, j)
			}
		}
	}
	w.seen.forget(known)
	for id, version := range w.patched {
		if obj := w.objects.Get(id); obj == nil || obj.GetResourceVersion() != version {
			delete(w.patched, id)
		}
	}
	return jobs
}

func (w *Writer) job(id shape.ID, s *busv1.Status, served int, now time.Time) (job, bool) {
	obj := w.objects.Get(id)
	if obj == nil || obj.GetGeneration() != s.GetGeneration() || s.GetUid() != "" && string(obj.GetUID()) != s.GetUid() {
		return job{}, false
	}
	if version, ok := w.patched[id]; ok && version == obj.GetResourceVersion() {
		return job{}, false
	}
	patch, err := merge(obj, s, served, now)
	if err != nil || patch == nil {
		return job{}, false
	}
	return job{id, obj.GetResourceVersion(), patch}, true
}

// write sends patches by some workers, until the lease is lost or the API server
// takes none.
func (w *Writer) write(ctx context.Context, check func() error, jobs []job) {
	if over := len(jobs) - maxQueue; over > 0 {
		w.meter.overflows.Add(float64(over))
		jobs = jobs[:maxQueue]
		w.rounds.Again()
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	w.meter.enqueued.Add(float64(len(jobs)))
	queue := make(chan job)
	done := make(chan outcome)
	var working sync.WaitGroup
	for range min(workers, len(jobs)) {
		working.Go(func() {
			for j := range queue {
				w.meter.dequeued.Inc()
				if ctx.Err() != nil || check() != nil {
					stop()
					w.meter.dropped.Inc()
					continue
				}
				done <- outcome{j, w.send(ctx, j)}
			}
		})
	}
	go func() {
		for _, j := range jobs {
			queue <- j
		}
		close(queue)
		working.Wait()
		close(done)
	}()
	fails := 0
	for o := range done {
		if w.settle(o) {
			fails = 0
		} else if fails++; fails == maxFails {
			stop()
		}
	}
}

// outcome is what became of a job.
type outcome struct {
	job
	err error
}

func (w *Writer) send(ctx context.Context, j job) error {
	ctx, cancel := context.WithTimeout(ctx, patchTimeout)
	defer cancel()
	began := time.Now()
	err := w.objects.PatchStatus(ctx, j.id, j.patch)
	w.meter.duration.Observe(time.Since(began).Seconds())
	if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return errors.Join(errTimeout, err)
	}
	return err
}

var errTimeout = errors.New("no answer in time")

// settle takes note of an outcome; false when the API server failed. An object
// that has changed, or has gone, in between is no failure: it is decided on anew.
func (w *Writer) settle(o outcome) bool {
	switch {
	case o.err == nil:
		w.patched[o.id] = o.version
		w.meter.patches.Inc()
		w.refused.Over()
		return true
	case apierrors.IsConflict(o.err):
		time.AfterFunc(afterConflict, w.rounds.Again)
		return true
	case apierrors.IsNotFound(o.err), errors.Is(o.err, context.Canceled):
		return true
	case errors.Is(o.err, errTimeout):
		w.meter.timeouts.Inc()
	default:
		w.meter.errors.Inc()
	}
	w.refused.Hear(o.err, obs.Object(o.id.String()))
	return false
}
