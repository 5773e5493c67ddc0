package kube

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/weftmesh/weft/services/kit/say"
)

// ReadyPods lists the pods of a namespace that match the selector and are ready,
// by name.
func (c *Client) ReadyPods(ctx context.Context, ns, selector string) ([]unstructured.Unstructured, error) {
	pods, err := c.List(ctx, Pods, ns, selector)
	if err != nil {
		return nil, err
	}
	ready := slices.DeleteFunc(pods, func(pod unstructured.Unstructured) bool { return !Ready(&pod) })
	slices.SortFunc(ready, func(a, b unstructured.Unstructured) int { return strings.Compare(a.GetName(), b.GetName()) })
	return ready, nil
}

// ReadyPod is one of them; it is an error if there is none.
func (c *Client) ReadyPod(ctx context.Context, ns, selector string) (*unstructured.Unstructured, error) {
	ready, err := c.ReadyPods(ctx, ns, selector)
	if err != nil {
		return nil, err
	}
	if len(ready) == 0 {
		return nil, &say.Problem{
			What: fmt.Sprintf("no pod with %s is ready in namespace %s", selector, ns),
			Why:  "none exists there, or none has become ready",
			Next: fmt.Sprintf("kubectl -n %s get pods; name another namespace with --linkerd-namespace", ns),
		}
	}
	return &ready[0], nil
}

// Ready says whether a pod runs, is ready and stays.
func Ready(pod *unstructured.Unstructured) bool {
	if pod.GetDeletionTimestamp() != nil {
		return false
	}
	conditions, _, _ := unstructured.NestedSlice(pod.Object, "status", "conditions")
	for _, c := range conditions {
		if m, ok := c.(map[string]any); ok && m["type"] == "Ready" {
			return m["status"] == "True"
		}
	}
	return false
}
