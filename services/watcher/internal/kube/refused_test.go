package kube

import (
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	clienttesting "k8s.io/client-go/testing"

	"github.com/weftmesh/weft/services/watcher/internal/shape"
)

// TestRefusedKind: the others go on without it, it is named and hidden, and read
// as soon as it may be.
func TestRefusedKind(t *testing.T) {
	c := newCluster()
	c.installAll()
	fill(t, c)
	var refusing atomic.Bool
	refusing.Store(true)
	no := apierrors.NewForbidden(schema.GroupResource{Group: "policy.linkerd.io", Resource: "servers"}, "", errors.New("no rule"))
	c.dynamic.PrependReactor("list", "servers", func(clienttesting.Action) (bool, runtime.Object, error) {
		return refusing.Load(), nil, no
	})
	c.dynamic.PrependWatchReactor("servers", func(clienttesting.Action) (bool, watch.Interface, error) {
		return refusing.Load(), nil, no
	})
	r := start(t, c)
	r.ready()
	trouble := r.Trouble()
	if !trouble.Hides(shape.Servers) || trouble.Hides(shape.Pod) || trouble.Blind {
		t.Errorf("trouble %+v, want Servers hidden and nothing else", trouble)
	}
	if len(trouble.Skipped) != 1 || trouble.Skipped[0].Object != "every Server" || !strings.Contains(trouble.Skipped[0].Reason, "list and watch servers") {
		t.Errorf("skipped %+v", trouble.Skipped)
	}
	n := 0
	r.List(shape.AuthorizationPolicies, "grove", func(metav1.Object) { n++ })
	if n != 1 {
		t.Errorf("%d AuthorizationPolicies, want 1", n)
	}
	refusing.Store(false)
	id := shape.ID{Kind: shape.Servers, Namespace: "grove", Name: "c"}
	until(t, "the kind is read", func() bool {
		trouble := r.Trouble()
		return r.Get(id) != nil && len(trouble.Skipped) == 0 && !trouble.Hides(shape.Servers)
	})
	if !slices.Contains(r.taken(), id.String()) {
		t.Error("the Server was not named")
	}
}

// taken takes all names there are.
func (r *rig) taken() []string {
	var out []string
	for _, c := range r.Changes().Take(1000) {
		out = append(out, c.ID.String())
	}
	return out
}

// TestNothingMayBeRead: that is no complete list.
func TestNothingMayBeRead(t *testing.T) {
	c := newCluster()
	no := apierrors.NewForbidden(schema.GroupResource{}, "", errors.New("no rule"))
	for _, f := range []*clienttesting.Fake{&c.typed.Fake, &c.meta.Fake} {
		f.PrependReactor("list", "*", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, no })
	}
	r := start(t, c)
	until(t, "every kind is refused", func() bool { return len(r.Trouble().Unread) == 7 })
	asked := c.crds.questions()
	until(t, "some time passes", func() bool { return c.crds.questions() > asked+10 })
	select {
	case <-r.Synced():
		t.Error("complete, and nothing was read")
	default:
	}
}
