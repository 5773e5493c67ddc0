package kube

import (
	"iter"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weftmesh/weft/services/watcher/internal/shape"
	"github.com/weftmesh/weft/services/watcher/internal/source"
)

// Changes names objects that may have changed.
func (s *Source) Changes() *source.Queue { return s.queue }

// Synced is closed when every kind that exists, and may be read, has been listed.
func (s *Source) Synced() <-chan struct{} { return s.synced }

// Derives is false: Kubernetes has a controller that makes slices.
func (s *Source) Derives() bool { return false }

// Trouble names the kinds that the API server refuses to show. One that was read
// before keeps what it had; one that never was is unknown. A kind that can't be
// listed for another reason keeps the source from being complete.
func (s *Source) Trouble() source.Trouble {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var t source.Trouble
	for _, k := range shape.Kinds {
		f := s.feeds[k.Kind]
		if f == nil {
			continue
		}
		r := f.refused.Load()
		if r == nil {
			continue
		}
		t.Skipped = append(t.Skipped, source.Skipped{Object: "every " + string(k.Kind), Reason: r.reason})
		if !f.synced() {
			t.Unread = append(t.Unread, k.Kind)
		}
	}
	return t
}

// Get finds an object in the cache.
func (s *Source) Get(id shape.ID) metav1.Object {
	s.mu.RLock()
	f := s.feeds[id.Kind]
	s.mu.RUnlock()
	if f == nil {
		return nil
	}
	key := id.Name
	if id.Namespace != "" {
		key = id.Namespace + "/" + id.Name
	}
	item, exists, err := f.informer.GetStore().GetByKey(key)
	if err != nil || !exists {
		return nil
	}
	obj, ok := item.(metav1.Object)
	if !ok {
		return nil
	}
	return obj
}

// List calls each with the objects of one kind and namespace. Nothing asks for
// it while Derives is false, so there is no index for it.
func (s *Source) List(kind shape.Kind, namespace string, each func(metav1.Object)) {
	for obj := range s.All(kind) {
		if obj.GetNamespace() == namespace {
			each(obj)
		}
	}
}

// All are the objects of one kind that are known at the time.
func (s *Source) All(kind shape.Kind) iter.Seq[metav1.Object] {
	return func(yield func(metav1.Object) bool) {
		s.mu.RLock()
		f := s.feeds[kind]
		s.mu.RUnlock()
		if f == nil {
			return
		}
		for _, item := range f.informer.GetStore().List() {
			if obj, ok := item.(metav1.Object); ok && !yield(obj) {
				return
			}
		}
	}
}

// Pods are all pods that are known at the time.
func (s *Source) Pods() iter.Seq[*corev1.Pod] {
	return func(yield func(*corev1.Pod) bool) {
		for obj := range s.All(shape.Pod) {
			if pod, ok := obj.(*corev1.Pod); ok && !yield(pod) {
				return
			}
		}
	}
}

// Events is the way to write events.
func (s *Source) Events() EventWriter { return s.clients.Events }
