package kube

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/weftmesh/weft/services/watcher/internal/shape"
)

// feed is the one watch of a kind, with its cache.
type feed struct {
	info     shape.KindInfo
	version  string
	informer cache.SharedIndexInformer
	handler  cache.ResourceEventHandlerRegistration
	cancel   context.CancelFunc
	done     chan struct{}
	// refused is set while the API server refuses to show the kind.
	refused atomic.Pointer[refusal]
}

// refusal is since when, and in which words, a kind may not be read.
type refusal struct {
	since  time.Time
	reason string
}

func (s *Source) newFeed(info shape.KindInfo, version string) (*feed, error) {
	f := &feed{info: info, version: version, done: make(chan struct{}), cancel: func() {}}
	lw, client, example := s.lister(info, version)
	s.heed(f, lw)
	f.informer = cache.NewSharedIndexInformerWithOptions(
		// The client says whether it can stream the first list (WatchList).
		cache.ToListWatcherWithWatchListSemantics(lw, client),
		example,
		cache.SharedIndexInformerOptions{ObjectDescription: string(info.Kind)},
	)
	if err := f.informer.SetTransform(trim(info.Kind)); err != nil {
		return nil, fmt.Errorf("watching %s: %w", info.Resource, err)
	}
	failed := s.errors.WithLabelValues(string(info.Kind))
	err := f.informer.SetWatchErrorHandlerWithContext(func(ctx context.Context, _ *cache.Reflector, err error) {
		if ctx.Err() != nil || apierrors.IsResourceExpired(err) {
			return // stopping, or an old watch that is begun again as a matter of course
		}
		failed.Inc()
		s.cfg.Log.Warn("watch failed and is begun again", "kind", string(info.Kind), "error", err)
	})
	if err != nil {
		return nil, fmt.Errorf("watching %s: %w", info.Resource, err)
	}
	f.handler, err = f.informer.AddEventHandler(&handler{kind: info.Kind, add: s.queue.Add})
	if err != nil {
		return nil, fmt.Errorf("watching %s: %w", info.Resource, err)
	}
	return f, nil
}

// heed notes what the API server says to a list or watch. Only a watch that was
// begun shows that both are allowed.
func (s *Source) heed(f *feed, lw *cache.ListWatch) {
	note := func(err error) {
		if !apierrors.IsForbidden(err) {
			return
		}
		r := &refusal{since: time.Now(), reason: "the API server refuses to show them: let the watcher's service account list and watch " +
			f.info.Resource + ""}
		if f.refused.CompareAndSwap(nil, r) {
			s.queue.Wake()
		}
	}
	list, begin := lw.ListWithContextFunc, lw.WatchFuncWithContext
	lw.ListWithContextFunc = func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		out, err := list(ctx, o)
		note(err)
		return out, err
	}
	lw.WatchFuncWithContext = func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
		w, err := begin(ctx, o)
		note(err)
		if err == nil && f.refused.Swap(nil) != nil {
			s.queue.Wake()
		}
		return w, err
	}
}

func (f *feed) run(ctx context.Context) {
	ctx, f.cancel = context.WithCancel(ctx)
	go func() {
		defer close(f.done)
		f.informer.RunWithContext(ctx)
	}()
}

func (f *feed) stop() {
	f.cancel()
	<-f.done
}

// synced: the first list is in the cache and every object of it was named.
func (f *feed) synced() bool { return f.handler.HasSynced() }

// handler names objects. It must not block, and the queue never does.
type handler struct {
	kind shape.Kind
	add  func(shape.ID, time.Time)
}

func (h *handler) OnAdd(obj any, _ bool) { h.name(obj) }

func (h *handler) OnUpdate(before, after any) {
	was, ok1 := before.(metav1.Object)
	is, ok2 := after.(metav1.Object)
	if ok1 && ok2 && was.GetResourceVersion() != "" && was.GetResourceVersion() == is.GetResourceVersion() {
		return // seen again after a relist
	}
	h.name(after)
}

func (h *handler) OnDelete(obj any) { h.name(obj) }

func (h *handler) name(obj any) {
	if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		namespace, name, err := cache.SplitMetaNamespaceKey(gone.Key)
		if err == nil {
			h.add(shape.ID{Kind: h.kind, Namespace: namespace, Name: name}, time.Now())
		}
		return
	}
	if o, ok := obj.(metav1.Object); ok {
		h.add(shape.IDOf(h.kind, o), time.Now())
	}
}

// lister picks the client for a kind: typed where most fields are read, metadata
// where no others are, dynamic for custom kinds, which must be decoded one by
// one. client is asked whether it can stream lists.
func (s *Source) lister(info shape.KindInfo, version string) (lw *cache.ListWatch, client any, example runtime.Object) {
	c := s.clients
	switch info.Kind {
	case shape.Namespace:
		return listWatch(c.Namespaces.List, c.Namespaces.Watch), c.Namespaces, new(corev1.Namespace)
	case shape.Service:
		return listWatch(c.Services.List, c.Services.Watch), c.Services, new(corev1.Service)
	case shape.Pod:
		return listWatch(c.Pods.List, c.Pods.Watch), c.Pods, new(corev1.Pod)
	case shape.EndpointSlice:
		return listWatch(c.Slices.List, c.Slices.Watch), c.Slices, new(discoveryv1.EndpointSlice)
	}
	gvr := schema.GroupVersionResource{Group: info.Group, Version: version, Resource: info.Resource}
	if info.Custom {
		r := c.Dynamic.Resource(gvr)
		return listWatch(r.List, r.Watch), c.Dynamic, new(unstructured.Unstructured)
	}
	r := c.Metadata.Resource(gvr)
	return listWatch(r.List, r.Watch), c.Metadata, new(metav1.PartialObjectMetadata)
}

func listWatch[L runtime.Object](
	list func(context.Context, metav1.ListOptions) (L, error),
	watcher func(context.Context, metav1.ListOptions) (watch.Interface, error),
) *cache.ListWatch {
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return list(ctx, o)
		},
		WatchFuncWithContext: watcher,
	}
}
