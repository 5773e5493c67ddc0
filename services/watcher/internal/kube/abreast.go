package kube

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"
)

// A watch may be behind without knowing it: its process was stopped, or the
// server that it hangs on is. Whoever begins to lead with such a cache tells the
// mesh of pods that are gone. So a new leader asks, for each kind, what there is
// now, and waits until its cache has seen it.
const (
	// abreastFor bounds the wait: a watch that is stuck must not leave the mesh
	// without a writer.
	abreastFor = 15 * time.Second
	// abreastSoon is how long a large cache, which hears of something all the
	// time, may take before all of its objects are compared.
	abreastSoon = time.Second
	abreastBig  = 1000
	abreastPage = 500
	abreastLook = 50 * time.Millisecond
)

// abreast waits until no cache is older than the API server was when it was
// called, or until that takes too long or ctx ends.
func (s *Source) abreast(ctx context.Context) {
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, abreastFor)
	defer cancel()
	s.mu.RLock()
	feeds := make([]*feed, 0, len(s.feeds))
	for _, f := range s.feeds {
		feeds = append(feeds, f)
	}
	s.mu.RUnlock()
	var wg sync.WaitGroup
	for _, f := range feeds {
		if f.refused.Load() != nil {
			continue
		}
		wg.Go(func() {
			if err := f.abreast(ctx, s.clients.Metadata); err != nil {
				s.cfg.Log.Warn("leading with what is cached, which may be old", "kind", string(f.info.Kind), "error", err)
			}
		})
	}
	wg.Wait()
	s.cfg.Log.Info("caches compared with the API server", "kinds", len(feeds), "took", time.Since(began))
}

func (f *feed) abreast(ctx context.Context, client metadata.Interface) error {
	all := client.Resource(schema.GroupVersionResource{Group: f.info.Group, Version: f.version, Resource: f.info.Resource})
	head, err := all.List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return fmt.Errorf("asking how new %s are: %w", f.info.Resource, err)
	}
	store := f.informer.GetStore()
	soon := time.Duration(0)
	if len(store.ListKeys()) > abreastBig {
		soon = abreastSoon
	}
	if poll(ctx, soon, func() bool { return seen(f.informer.LastSyncResourceVersion(), head.ResourceVersion) }) {
		return nil
	}
	// Little happens to this kind, so its watch can't know how new it is.
	now, version, err := names(ctx, all)
	if err != nil {
		return fmt.Errorf("listing the names of %s: %w", f.info.Resource, err)
	}
	behind := 0
	if !poll(ctx, abreastFor, func() bool { behind = lacking(store, now, version); return behind == 0 }) {
		return fmt.Errorf("%d of %d %s are not as the API server has them", behind, len(now), f.info.Resource)
	}
	return nil
}

// poll asks at once, and again for a while.
func poll(ctx context.Context, most time.Duration, ok func() bool) bool {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	tick := time.NewTicker(abreastLook)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return false
		}
	}
	return true
}

// names lists every object's key and version, and the version of the list.
func names(ctx context.Context, all metadata.Getter) (now map[string]string, version string, err error) {
	now = make(map[string]string)
	more := ""
	for {
		page, err := all.List(ctx, metav1.ListOptions{Limit: abreastPage, Continue: more})
		if err != nil {
			return nil, "", err //nolint:wrapcheck // wrapped by the caller
		}
		for i := range page.Items {
			key, err := cache.MetaNamespaceKeyFunc(&page.Items[i])
			if err != nil {
				return nil, "", err //nolint:wrapcheck // wrapped by the caller
			}
			now[key] = page.Items[i].ResourceVersion
		}
		version = page.ResourceVersion
		if more = page.Continue; more == "" {
			return now, version, nil
		}
	}
}

// lacking counts the objects that a cache has not as they are, or has although
// they were gone at that version.
func lacking(store cache.Store, now map[string]string, version string) int {
	n := 0
	for key, is := range now {
		obj, has, err := store.GetByKey(key)
		if err != nil || !has || !seen(versionOf(obj), is) {
			n++
		}
	}
	for _, key := range store.ListKeys() {
		if _, there := now[key]; there {
			continue
		}
		if obj, has, err := store.GetByKey(key); err == nil && has && !seen(versionOf(obj), version) {
			n++
		}
	}
	return n
}

func versionOf(obj any) string {
	if o, ok := obj.(metav1.Object); ok {
		return o.GetResourceVersion()
	}
	return ""
}

// seen says whether a cache at have has seen want. Resource versions of one
// resource are whole numbers that can be compared (KEP-5504).
func seen(have, want string) bool {
	if have == want {
		return true
	}
	h, err1 := strconv.ParseUint(have, 10, 64)
	w, err2 := strconv.ParseUint(want, 10, 64)
	return err1 == nil && err2 == nil && h > w
}
