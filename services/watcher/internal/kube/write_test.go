package kube

import (
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"

	"github.com/weftmesh/weft/services/watcher/internal/shape"
)

// TestPatchStatus: a status is written in the version that is read, as a status
// and nothing else; of two groups with a kind of one name, to the right one.
func TestPatchStatus(t *testing.T) {
	c := newCluster()
	c.crds.serve("gateway.networking.k8s.io/v1beta1", "httproutes")
	c.crds.serve("policy.linkerd.io/v1beta3", "httproutes")
	gvr := schema.GroupVersionResource{Group: "gateway.networking.k8s.io", Version: "v1beta1", Resource: "httproutes"}
	_, err := c.dynamic.Resource(gvr).Namespace("grove").Create(t.Context(), custom("gateway.networking.k8s.io/v1beta1/HTTPRoute", "web", map[string]any{}), metav1.CreateOptions{})
	must(t, err)
	r := start(t, c).ready()
	id := shape.ID{Kind: shape.HTTPRoutes, Namespace: "grove", Name: "web"}
	must(t, r.PatchStatus(t.Context(), id, []byte(`{"status":{"parents":[]}}`)))
	var patched clienttesting.PatchAction
	for _, a := range c.dynamic.Actions() {
		if p, ok := a.(clienttesting.PatchAction); ok {
			patched = p
		}
	}
	if patched == nil || patched.GetResource() != gvr || patched.GetSubresource() != "status" || patched.GetPatchType() != types.MergePatchType {
		t.Errorf("patched %+v", patched)
	}
	until(t, "the status is read", func() bool {
		route, ok := r.Get(id).(*shape.HTTPRoute)
		return ok && strings.Contains(string(route.Status), `"parents":[]`)
	})
	id.Kind = shape.PolicyHTTPRoutes
	if err := r.PatchStatus(t.Context(), id, []byte(`{}`)); !apierrors.IsNotFound(err) {
		t.Errorf("PatchStatus() of a route of the other group = %v", err)
	}
	for _, kind := range []shape.Kind{shape.GRPCRoutes, shape.Pod} { // not served; not one whose status is ours
		id.Kind = kind
		if err := r.PatchStatus(t.Context(), id, []byte(`{}`)); err == nil || !strings.Contains(err.Error(), "no such kind") {
			t.Errorf("PatchStatus() of a %s = %v", kind, err)
		}
	}
}
