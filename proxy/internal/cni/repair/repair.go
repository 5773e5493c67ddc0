// Package repair finds pods of one node that came up before the CNI plugin did,
// and has them created anew: their validator proved that nothing is redirected,
// and only a new network namespace gets new rules.
//
// It deletes only what somebody will create again, one pod at a time.
package repair

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/url"
	"time"

	"github.com/weftmesh/weft/proxy/internal/cni/apiserver"
	"github.com/weftmesh/weft/proxy/internal/validate"
	"github.com/weftmesh/weft/services/kit/pause"
)

// Names that others know (spec/features.md §2; Linkerd's repair controller).
const (
	validator  = "linkerd-network-validator"
	injected   = "linkerd.io/control-plane-ns" // a label that every injected pod has
	component  = "linkerd-cni-repair-controller"
	reason     = "LinkerdCNINotConfigured"
	deleted    = "Deleting pod to create a new one with proper CNI config"
	abandoned  = "The pod's traffic is not redirected to its proxy, and nothing would create the pod again: delete and create it yourself"
	actionGone = "Deleting"
	actionKept = "Keeping"
)

const (
	patience  = 5 * time.Second // bounds one call
	watchTime = 5 * time.Minute // of one watch
	longest   = 30 * time.Second
	queueSize = 32
)

// Repairer watches one node's pods.
type Repairer struct {
	API     *apiserver.Client
	Node    string        // whose pods are watched
	Name    string        // this pod's, for events
	Pause   time.Duration // between two deletions; 0 means a second
	Backoff time.Duration // before the first repetition of a failed watch; 0 means a second
	Metrics *Metrics
	Log     *slog.Logger
	Now     func() time.Time // for events; nil is the clock

	// told are bare pods that had their event. Forgotten at each listing.
	told map[string]bool
}

// verdict on one pod.
type verdict int

const (
	fine   verdict = iota
	doomed         // not redirected, and its owner creates another
	bare           // not redirected, and nobody does
)

// judge looks for the one exit code that means "not redirected": a validator that
// was killed or called wrongly proves nothing.
func judge(p *apiserver.Pod) verdict {
	if p.Metadata.DeletionTimestamp != "" || p.Metadata.Labels[injected] == "" {
		return fine
	}
	if p.Status.Phase == "Failed" || p.Status.Phase == "Succeeded" {
		return fine // it has ended, and its owner has taken note
	}
	failed := false
	for _, c := range p.Status.InitContainerStatuses {
		for _, s := range []apiserver.State{c.State, c.LastState} {
			failed = failed || c.Name == validator && s.Terminated != nil && s.Terminated.ExitCode == validate.ExitCode
		}
	}
	if !failed {
		return fine
	}
	for _, o := range p.Metadata.OwnerReferences {
		if o.Controller && o.Kind != "Node" { // a static pod's mirror is its node's
			return doomed
		}
	}
	return bare
}

// Run watches until ctx ends.
func (r *Repairer) Run(ctx context.Context) error {
	queue := make(chan apiserver.Pod, queueSize)
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.work(ctx, queue)
	}()
	defer func() { <-done }()

	first := orDefault(r.Backoff, time.Second)
	wait := first
	for ctx.Err() == nil {
		err := r.follow(ctx, queue)
		if err == nil {
			wait = first
		} else if ctx.Err() == nil {
			r.Log.Warn("the watch of the node's pods has ended; it is opened again", "error", err, "in", wait)
			r.Metrics.watchErrors.Inc()
		}
		if !pause.For(ctx, wait/2+rand.N(wait/2+1)) { //nolint:gosec // jitter is no secret
			break
		}
		wait = min(wait*2, longest)
	}
	return nil
}

// follow lists the node's pods and watches them until the stream ends. It
// returns nil at an end that is no failure.
func (r *Repairer) follow(ctx context.Context, queue chan<- apiserver.Pod) error {
	query := func() url.Values {
		return url.Values{"fieldSelector": {"spec.nodeName=" + r.Node}, "labelSelector": {injected}}
	}
	listed, cancel := context.WithTimeout(ctx, 4*patience)
	defer cancel()
	q := query()
	q.Set("resourceVersion", "0") // from the API server's memory, which is enough
	var pods apiserver.PodList
	if err := r.API.Get(listed, "/api/v1/pods", q, &pods); err != nil {
		return fmt.Errorf("listing the node's pods: %w", err)
	}
	for _, p := range pods.Items {
		r.offer(p, queue)
	}
	version := pods.Metadata.ResourceVersion
	for ctx.Err() == nil {
		q := query()
		q.Set("resourceVersion", version)
		q.Set("timeoutSeconds", fmt.Sprint(int(watchTime.Seconds())))
		watched, cancel := context.WithTimeout(ctx, watchTime+longest)
		for event, err := range r.API.WatchPods(watched, q) {
			if err != nil {
				cancel()
				if apiserver.Code(err) == http.StatusGone {
					return nil // too far back: list again
				}
				return err
			}
			if event.Pod.Metadata.ResourceVersion != "" {
				version = event.Pod.Metadata.ResourceVersion
			}
			if event.Type == "ADDED" || event.Type == "MODIFIED" {
				r.offer(event.Pod, queue)
			}
		}
		cancel()
		if !pause.For(ctx, orDefault(r.Backoff, time.Second)) { // a server that ends each stream at once is not hammered
			break
		}
	}
	return nil
}

// offer never blocks: a pod that finds the queue full fails again in a while.
func (r *Repairer) offer(p apiserver.Pod, queue chan<- apiserver.Pod) {
	if judge(&p) == fine {
		return
	}
	select {
	case queue <- p:
	default:
		r.Metrics.overflow.Inc()
	}
}

// work deletes one pod after the other.
func (r *Repairer) work(ctx context.Context, queue <-chan apiserver.Pod) {
	r.told = map[string]bool{}
	last := "" // the uid of the pod that was deleted last: its next event may be queued already
	for {
		select {
		case <-ctx.Done():
			return
		case p := <-queue:
			if p.Metadata.UID == last {
				continue
			}
			if judge(&p) == bare {
				r.keep(ctx, &p)
				continue
			}
			if r.delete(ctx, &p) {
				last = p.Metadata.UID
			}
			if !pause.For(ctx, orDefault(r.Pause, time.Second)) {
				return
			}
		}
	}
}

// delete reports whether the pod is gone, or going.
func (r *Repairer) delete(ctx context.Context, p *apiserver.Pod) bool {
	log := r.Log.With("namespace", p.Metadata.Namespace, "pod", p.Metadata.Name)
	once, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	start := time.Now()
	err := r.API.Delete(once, apiserver.PodPath(p.Metadata.Namespace, p.Metadata.Name), map[string]any{
		"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0,
		"preconditions": map[string]any{"uid": p.Metadata.UID}, // not another one of that name
	})
	switch code := apiserver.Code(err); {
	case code == http.StatusNotFound || code == http.StatusConflict:
		return true // somebody was faster
	case errors.Is(err, context.DeadlineExceeded):
		log.Warn("deleting a pod that is not redirected took too long", "error", err)
		r.Metrics.deleteTimeouts.Inc()
		return false
	case err != nil:
		log.Warn("a pod that is not redirected could not be deleted", "error", err)
		r.Metrics.deleteErrors.Inc()
		return false
	}
	r.Metrics.deleted.Inc()
	r.Metrics.deleteSeconds.Observe(time.Since(start).Seconds())
	log.Info("deleted a pod that was not redirected, so that it is created anew")
	r.event(ctx, p, "Normal", actionGone, deleted)
	return true
}

// keep tells the owner of a pod that nobody would create again, once.
func (r *Repairer) keep(ctx context.Context, p *apiserver.Pod) {
	const many = 1024 // names of pods remembered; then some hear it twice
	if r.told[p.Metadata.UID] {
		return
	}
	if len(r.told) >= many {
		clear(r.told)
	}
	r.told[p.Metadata.UID] = true
	r.Metrics.kept.Inc()
	r.Log.Warn("a pod is not redirected and has no owner that would create it again", "namespace", p.Metadata.Namespace, "pod", p.Metadata.Name)
	r.event(ctx, p, "Warning", actionKept, abandoned)
}

func orDefault(d, otherwise time.Duration) time.Duration {
	if d > 0 {
		return d
	}
	return otherwise
}
