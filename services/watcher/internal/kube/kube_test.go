package kube

import (
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/weftmesh/weft/services/watcher/internal/shape"
)

func meta(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name, Namespace: "grove"} }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// fill puts one object of each kind into the cluster.
func fill(t *testing.T, c *cluster) {
	t.Helper()
	ctx := t.Context()
	_, err := c.typed.Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "grove"}}, metav1.CreateOptions{})
	must(t, err)
	_, err = c.typed.Pods("grove").Create(ctx, &corev1.Pod{ObjectMeta: meta("p")}, metav1.CreateOptions{})
	must(t, err)
	_, err = c.typed.Services("grove").Create(ctx, &corev1.Service{ObjectMeta: meta("s")}, metav1.CreateOptions{})
	must(t, err)
	_, err = c.typed.Slices("grove").Create(ctx, &discoveryv1.EndpointSlice{ObjectMeta: meta("s-1")}, metav1.CreateOptions{})
	must(t, err)
	for _, m := range []struct {
		gv, kind, resource, namespace string
	}{{"v1", "Node", "nodes", ""}, {"apps/v1", "ReplicaSet", "replicasets", "grove"}, {"batch/v1", "Job", "jobs", "grove"}} {
		gv, err := schema.ParseGroupVersion(m.gv)
		must(t, err)
		must(t, c.meta.Tracker().Create(gv.WithResource(m.resource), &metav1.PartialObjectMetadata{
			TypeMeta:   metav1.TypeMeta{APIVersion: m.gv, Kind: m.kind},
			ObjectMeta: metav1.ObjectMeta{Name: "m", Namespace: m.namespace, Labels: map[string]string{"topology.kubernetes.io/zone": "west", "x": "y"}},
		}, m.namespace))
	}
	for _, k := range shape.Kinds {
		if !k.Custom {
			continue
		}
		gvr := schema.GroupVersionResource{Group: k.Group, Version: k.Versions[0], Resource: k.Resource}
		_, err := c.dynamic.Resource(gvr).Namespace("grove").Create(ctx, custom(k.Group+"/"+k.Versions[0]+"/"+k.Kind.Name(), "c", map[string]any{}), metav1.CreateOptions{})
		must(t, err)
	}
}

// TestEveryKindIsReadOnce (complaint A26): each kind is listed, named and found,
// by one watch, and nothing else is asked for.
func TestEveryKindIsReadOnce(t *testing.T) {
	c := newCluster()
	c.installAll()
	fill(t, c)
	r := start(t, c).ready()
	r.named(everyKind...)
	for _, k := range shape.Kinds {
		n := 0
		ns := "grove"
		if !k.Namespaced {
			ns = ""
		}
		r.List(k.Kind, ns, func(obj metav1.Object) {
			n++
			if r.Get(shape.IDOf(k.Kind, obj)) != obj {
				t.Errorf("Get(%v) is not what List shows", shape.IDOf(k.Kind, obj))
			}
		})
		if n != 1 {
			t.Errorf("List(%s) has %d objects, want 1", k.Kind, n)
		}
	}
	got := c.watches()
	for _, k := range shape.Kinds {
		name := schema.GroupResource{Group: k.Group, Resource: k.Resource}.String()
		if got[name] != 1 {
			t.Errorf("%d watches of %s, want 1", got[name], name)
		}
		delete(got, name)
	}
	if len(got) > 0 {
		t.Errorf("other watches: %v", got)
	}
	for _, a := range c.typed.Actions() {
		if a.GetResource().Resource == "secrets" {
			t.Error("secrets were asked for")
		}
	}
	if node := r.Get(shape.ID{Kind: shape.Node, Name: "m"}); len(node.GetLabels()) != 1 {
		t.Errorf("labels of a node %v, want the zone alone", node.GetLabels())
	}
}

func TestChangesAreNamed(t *testing.T) {
	c := newCluster()
	r := start(t, c).ready()
	pods := c.typed.Pods("grove")
	_, err := pods.Create(t.Context(), &corev1.Pod{ObjectMeta: meta("p")}, metav1.CreateOptions{})
	must(t, err)
	r.named("Pod grove/p")
	_, err = pods.Update(t.Context(), &corev1.Pod{ObjectMeta: meta("p"), Spec: corev1.PodSpec{NodeName: "vm"}}, metav1.UpdateOptions{})
	must(t, err)
	r.named("Pod grove/p")
	if pod, ok := r.Get(shape.ID{Kind: shape.Pod, Namespace: "grove", Name: "p"}).(*corev1.Pod); !ok || pod.Spec.NodeName != "vm" {
		t.Errorf("Get() = %+v, want the new pod", pod)
	}
	must(t, pods.Delete(t.Context(), "p", metav1.DeleteOptions{}))
	r.named("Pod grove/p")
	if obj := r.Get(shape.ID{Kind: shape.Pod, Namespace: "grove", Name: "p"}); obj != nil {
		t.Errorf("Get() of a deleted pod = %v", obj)
	}
}

// TestBadCustomObject (complaint A25): it takes its own place among the good.
func TestBadCustomObject(t *testing.T) {
	c := newCluster()
	c.installAll()
	servers := c.dynamic.Resource(serversV3).Namespace("grove")
	for name, port := range map[string]any{"good": int64(80), "bad": []any{"x"}} {
		_, err := servers.Create(t.Context(), custom("policy.linkerd.io/v1beta3/Server", name, serverSpec(port)), metav1.CreateOptions{})
		must(t, err)
	}
	r := start(t, c).ready()
	r.named("Server grove/bad", "Server grove/good")
	bad, ok := r.Get(shape.ID{Kind: shape.Servers, Namespace: "grove", Name: "bad"}).(*shape.Bad)
	if !ok {
		t.Fatal("the bad Server is not kept as such")
	}
	if got, want := bad.Problem().Error(), "Server grove/bad: spec.port: is a list where a whole number belongs"; got != want {
		t.Errorf("problem %q, want %q", got, want)
	}
	if _, ok := r.Get(shape.ID{Kind: shape.Servers, Namespace: "grove", Name: "good"}).(*shape.Server); !ok {
		t.Error("the good Server is not decoded")
	}
}

func TestCustomKindsMayComeLate(t *testing.T) {
	c := newCluster()
	r := start(t, c).ready()
	r.named()
	c.crds.serve("policy.linkerd.io/v1beta3", "servers")
	until(t, "servers are watched", func() bool { return c.watches()["servers.policy.linkerd.io"] == 1 })
	_, err := c.dynamic.Resource(serversV3).Namespace("grove").Create(t.Context(), custom("policy.linkerd.io/v1beta3/Server", "web", serverSpec(int64(80))), metav1.CreateOptions{})
	must(t, err)
	r.named("Server grove/web")

	c.crds.serve("policy.linkerd.io/v1beta3")
	r.named("Server grove/web")
	if obj := r.Get(shape.ID{Kind: shape.Servers, Namespace: "grove", Name: "web"}); obj != nil {
		t.Errorf("Get() after the CRD went = %v", obj)
	}
	c.crds.serve("policy.linkerd.io/v1beta3", "servers")
	r.named("Server grove/web")
}

// TestVersionOfACustomKind: the newest version that is served is read, and the
// change from one to the other loses nothing.
func TestVersionOfACustomKind(t *testing.T) {
	c := newCluster()
	old := serversV3
	old.Version = "v1beta1"
	for _, gvr := range []schema.GroupVersionResource{old, serversV3} {
		_, err := c.dynamic.Resource(gvr).Namespace("grove").Create(t.Context(), custom(gvr.Group+"/"+gvr.Version+"/Server", "web", serverSpec(int64(80))), metav1.CreateOptions{})
		must(t, err)
	}
	c.crds.serve("policy.linkerd.io/v1beta1", "servers")
	r := start(t, c).ready()
	r.named("Server grove/web")
	c.crds.serve("policy.linkerd.io/v1beta3", "servers")
	id := shape.ID{Kind: shape.Servers, Namespace: "grove", Name: "web"}
	until(t, "v1beta3 is read", func() bool {
		if r.Get(id) == nil {
			t.Fatal("the Server was gone in between")
		}
		r.mu.RLock()
		defer r.mu.RUnlock()
		return r.feeds[shape.Servers].version == "v1beta3"
	})
	r.named("Server grove/web")
}

// TestDiscoveryFails: without an answer nothing is complete, and later nothing
// is given up.
func TestDiscoveryFails(t *testing.T) {
	c := newCluster()
	c.installAll()
	c.crds.fail(errors.New("the API server is busy"))
	_, err := c.dynamic.Resource(serversV3).Namespace("grove").Create(t.Context(), custom("policy.linkerd.io/v1beta3/Server", "web", serverSpec(int64(80))), metav1.CreateOptions{})
	must(t, err)
	r := start(t, c)
	until(t, "asked", func() bool { return c.crds.questions() > 10 })
	select {
	case <-r.Synced():
		t.Fatal("complete without knowing which kinds exist")
	default:
	}
	c.crds.fail(nil)
	r.ready().named("Server grove/web")
	c.crds.fail(errors.New("busy again"))
	asked := c.crds.questions()
	until(t, "asked again", func() bool { return c.crds.questions() > asked+10 })
	if r.Get(shape.ID{Kind: shape.Servers, Namespace: "grove", Name: "web"}) == nil {
		t.Error("the Server was given up")
	}
}
