package kube

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	metafake "k8s.io/client-go/metadata/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/weftmesh/weft/services/watcher/internal/shape"
)

// cluster is a fake API server, in the three parts that client-go has.
type cluster struct {
	typed   *clientset
	meta    *metafake.FakeMetadataClient
	dynamic *dynamicfake.FakeDynamicClient
	crds    *crds
}

func newCluster() *cluster {
	lists := make(map[schema.GroupVersionResource]string)
	for _, k := range shape.Kinds {
		for _, v := range k.Versions {
			lists[schema.GroupVersionResource{Group: k.Group, Version: v, Resource: k.Resource}] = k.Kind.Name() + "List"
		}
	}
	scheme := metafake.NewTestScheme()
	if err := metav1.AddMetaToScheme(scheme); err != nil {
		panic(err)
	}
	return &cluster{
		typed:   newClientset(),
		meta:    metafake.NewSimpleMetadataClient(scheme),
		dynamic: dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), lists),
		crds:    &crds{served: make(map[string][]string)},
	}
}

func (c *cluster) clients() Clients {
	return Clients{
		Namespaces: lists[*corev1.NamespaceList]{c.typed.Namespaces()},
		Services:   lists[*corev1.ServiceList]{c.typed.Services("")},
		Pods:       lists[*corev1.PodList]{c.typed.Pods("")},
		Slices:     lists[*discoveryv1.EndpointSliceList]{c.typed.Slices("")},
		Metadata:   c.meta,
		Dynamic:    c.dynamic,
		Writes:     c.dynamic,
		Discovery:  c.crds,
		Leases:     func(namespace string) leases { return c.typed.Leases(namespace) },
	}
}

// lists is a fake client, and says that it can't stream a first list.
type lists[L runtime.Object] struct{ reads[L] }

func (lists[L]) IsWatchListSemanticsUnSupported() bool { return true }

// crds is discovery, of which one question is asked.
type crds struct {
	mu     sync.Mutex
	served map[string][]string
	err    error
	asked  int
}

func (c *crds) Resources(_ context.Context, gv string) (*metav1.APIResourceList, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked++
	if c.err != nil {
		return nil, c.err
	}
	names, ok := c.served[gv]
	if !ok {
		return nil, apierrors.NewNotFound(schema.GroupResource{}, gv)
	}
	list := &metav1.APIResourceList{GroupVersion: gv}
	for _, n := range names {
		list.APIResources = append(list.APIResources, metav1.APIResource{Name: n})
	}
	return list, nil
}

func (c *crds) serve(gv string, resources ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(resources) == 0 {
		delete(c.served, gv)
		return
	}
	c.served[gv] = resources
}

func (c *crds) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.err = err
}

func (c *crds) questions() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.asked
}

// installAll serves the preferred version of every custom kind.
func (c *cluster) installAll() {
	served := make(map[string][]string)
	for _, k := range shape.Kinds {
		if k.Custom {
			gv := k.Group + "/" + k.Versions[0]
			served[gv] = append(served[gv], k.Resource)
		}
	}
	for gv, resources := range served {
		c.crds.serve(gv, resources...)
	}
}

// patience is how long a test waits for what must come; machines may be slow.
const patience = time.Minute

// rig is a running source over a fake cluster.
type rig struct {
	t *testing.T
	*cluster
	*Source
}

func start(t *testing.T, c *cluster) *rig {
	t.Helper()
	r := &rig{t: t, cluster: c, Source: New(c.clients(), Config{
		Rediscover: 20 * time.Millisecond,
		Refusal:    20 * time.Millisecond,
		Log:        slog.New(slog.DiscardHandler),
	})}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run() = %v", err)
		}
	})
	return r
}

func (r *rig) ready() *rig {
	r.t.Helper()
	select {
	case <-r.Synced():
	case <-time.After(patience):
		r.t.Fatal("not synced in time")
	}
	return r
}

func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("not in time: %s", what)
		}
	}
}

// named waits until the queue has named exactly these, and takes them.
func (r *rig) named(want ...string) {
	r.t.Helper()
	got := make(map[string]bool)
	until(r.t, "named "+strings.Join(want, ", "), func() bool {
		for _, c := range r.Changes().Take(1000) {
			got[c.ID.String()] = true
		}
		return len(got) >= len(want)
	})
	if names := slices.Sorted(maps.Keys(got)); !slices.Equal(names, want) {
		r.t.Fatalf("named %v, want %v", names, want)
	}
}

func custom(gvk, name string, spec map[string]any) *unstructured.Unstructured {
	i := strings.LastIndexByte(gvk, '/')
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": gvk[:i],
		"kind":       gvk[i+1:],
		"metadata":   map[string]any{"name": name, "namespace": "grove"},
		"spec":       spec,
	}}
}

func serverSpec(port any) map[string]any {
	return map[string]any{"podSelector": map[string]any{}, "port": port}
}

var serversV3 = schema.GroupVersionResource{Group: "policy.linkerd.io", Version: "v1beta3", Resource: "servers"}

func (c *cluster) watches() map[string]int {
	out := make(map[string]int)
	for _, actions := range [][]clienttesting.Action{c.typed.Actions(), c.meta.Actions(), c.dynamic.Actions()} {
		for _, a := range actions {
			if a.GetVerb() == "watch" {
				out[a.GetResource().GroupResource().String()]++
			}
		}
	}
	return out
}
