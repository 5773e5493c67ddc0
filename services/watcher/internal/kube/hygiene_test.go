package kube

import (
	"errors"
	"maps"
	"slices"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	clienttesting "k8s.io/client-go/testing"

	"github.com/weftmesh/weft/services/watcher/internal/shape"
)

// everyKind are the names that fill makes.
var everyKind = []string{
	"AuthorizationPolicy grove/c", "EgressNetwork grove/c", "EndpointSlice grove/s-1", "ExternalWorkload grove/c",
	"GRPCRoute grove/c", "HTTPLocalRateLimitPolicy grove/c", "HTTPRoute grove/c", "HTTPRoute.policy.linkerd.io grove/c",
	"Job grove/m", "Link grove/c", "MeshTLSAuthentication grove/c", "Namespace grove", "NetworkAuthentication grove/c",
	"Node m", "Pod grove/p", "ReferenceGrant grove/c", "ReplicaSet grove/m", "Server grove/c", "ServerAuthorization grove/c",
	"Service grove/s", "ServiceProfile grove/c", "TCPRoute grove/c", "TLSRoute grove/c", "TrafficSplit grove/c",
}

// TestWatchesBeginAgain: of every kind, a watch that is refused and one whose past
// is gone (410) are followed by one that works.
func TestWatchesBeginAgain(t *testing.T) {
	c := newCluster()
	c.installAll()
	var mu sync.Mutex
	begun := make(map[schema.GroupVersionResource]int)
	trouble := func(a clienttesting.Action) (bool, watch.Interface, error) {
		mu.Lock()
		defer mu.Unlock()
		begun[a.GetResource()]++
		switch begun[a.GetResource()] {
		case 1:
			return true, nil, apierrors.NewInternalError(errors.New("the API server is busy"))
		case 2:
			w := watch.NewFakeWithChanSize(1, false)
			status := apierrors.NewResourceExpired("too old resource version").Status()
			w.Error(&status)
			return true, w, nil
		}
		return false, nil, nil
	}
	c.typed.PrependWatchReactor("*", trouble)
	c.meta.PrependWatchReactor("*", trouble)
	c.dynamic.PrependWatchReactor("*", trouble)
	r := start(t, c)
	until(t, "every kind is watched for the third time", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(begun) == len(shape.Kinds) && !slices.ContainsFunc(slices.Collect(maps.Values(begun)), func(n int) bool { return n < 3 })
	})
	r.ready()
	fill(t, c)
	r.named(everyKind...)
	for _, k := range shape.Kinds {
		if got := testutil.ToFloat64(r.errors.WithLabelValues(string(k.Kind))); got < 1 {
			t.Errorf("%s: %v watch errors are counted, want 1", k.Kind, got)
		}
	}
}

// TestOneBadObjectOfEachKind (complaint A25): it takes its own place among the
// good, with a reason.
func TestOneBadObjectOfEachKind(t *testing.T) {
	c := newCluster()
	c.installAll()
	for _, k := range shape.Kinds {
		if !k.Custom {
			continue
		}
		gvr := schema.GroupVersionResource{Group: k.Group, Version: k.Versions[0], Resource: k.Resource}
		gvk := k.Group + "/" + k.Versions[0] + "/" + k.Kind.Name()
		bad := custom(gvk, "bad", nil)
		bad.Object["spec"] = []any{"no spec"}
		_, err := c.dynamic.Resource(gvr).Namespace("grove").Create(t.Context(), bad, metav1.CreateOptions{})
		must(t, err)
		_, err = c.dynamic.Resource(gvr).Namespace("grove").Create(t.Context(), custom(gvk, "good", map[string]any{}), metav1.CreateOptions{})
		must(t, err)
	}
	r := start(t, c).ready()
	for _, k := range shape.Kinds {
		if !k.Custom {
			continue
		}
		b, ok := r.Get(shape.ID{Kind: k.Kind, Namespace: "grove", Name: "bad"}).(*shape.Bad)
		if !ok {
			t.Errorf("the bad %s is not kept as such", k.Kind)
			continue
		}
		if got, want := b.Problem().Error(), string(k.Kind)+" grove/bad: spec: is a list where an object belongs"; got != want {
			t.Errorf("problem %q, want %q", got, want)
		}
		if _, bad := r.Get(shape.ID{Kind: k.Kind, Namespace: "grove", Name: "good"}).(*shape.Bad); bad {
			t.Errorf("the good %s is not decoded", k.Kind)
		}
	}
}

// TestTrimEveryKind: managed fields, with and without a time (A17), finalizers and
// what nobody reads are dropped, and what is known of the object stays.
func TestTrimEveryKind(t *testing.T) {
	fields := []metav1.ManagedFieldsEntry{{Manager: "a", Operation: metav1.ManagedFieldsOperationApply}, {Manager: "b", FieldsV1: metav1.NewFieldsV1(`{"f:spec":{}}`)}}
	om := metav1.ObjectMeta{
		Name: "x", Namespace: "grove", UID: "u", ResourceVersion: "7", ManagedFields: fields, Finalizers: []string{"example.org/f"},
		Annotations: map[string]string{"kubectl.kubernetes.io/last-applied-configuration": "{…}", "config.linkerd.io/opaque-ports": "1"},
		Labels:      map[string]string{"app": "x"},
	}
	labeled := map[shape.Kind]bool{shape.Pod: true, shape.Service: true, shape.Servers: true, shape.ExternalWorkloads: true}
	for _, k := range shape.Kinds {
		var in any
		switch k.Kind {
		case shape.Namespace:
			in = &corev1.Namespace{ObjectMeta: om}
		case shape.Pod:
			in = &corev1.Pod{ObjectMeta: om}
		case shape.Service:
			in = &corev1.Service{ObjectMeta: om}
		case shape.EndpointSlice:
			in = &discoveryv1.EndpointSlice{ObjectMeta: om}
		default:
			if k.Custom {
				u := custom(k.Group+"/"+k.Versions[0]+"/"+k.Kind.Name(), "x", map[string]any{"unread": map[string]any{"a": "b"}})
				u.SetUID(om.UID)
				u.SetResourceVersion(om.ResourceVersion)
				u.SetFinalizers(om.Finalizers)
				u.SetAnnotations(om.Annotations)
				u.SetLabels(om.Labels)
				u.Object["metadata"].(map[string]any)["managedFields"] = []any{
					map[string]any{"manager": "a", "operation": "Apply", "time": nil}, map[string]any{"manager": "b"},
				}
				in = u
			} else {
				in = &metav1.PartialObjectMetadata{ObjectMeta: om}
			}
		}
		trimmed, err := trim(k.Kind)(in)
		must(t, err)
		out := trimmed.(metav1.Object)
		if bad, ok := out.(*shape.Bad); ok {
			t.Errorf("%s: %v", k.Kind, bad.Problem())
			continue
		}
		if len(out.GetManagedFields())+len(out.GetFinalizers()) > 0 {
			t.Errorf("%s: managed fields %v, finalizers %v", k.Kind, out.GetManagedFields(), out.GetFinalizers())
		}
		if _, kept := out.GetAnnotations()["kubectl.kubernetes.io/last-applied-configuration"]; kept {
			t.Errorf("%s: annotations %v", k.Kind, out.GetAnnotations())
		}
		if got := len(out.GetLabels()) == 1; got != labeled[k.Kind] {
			t.Errorf("%s: labels %v", k.Kind, out.GetLabels())
		}
		if out.GetUID() != om.UID || out.GetResourceVersion() != om.ResourceVersion || out.GetName() != "x" {
			t.Errorf("%s: it is %s, %s in version %s", k.Kind, out.GetName(), out.GetUID(), out.GetResourceVersion())
		}
	}
}
