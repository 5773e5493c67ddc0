package diag

import (
	"context"

	corev1 "k8s.io/api/core/v1"
)

// PodsOf finds the pods of a resource that is written as kubectl has it, such as
// deploy/web.
func PodsOf(ctx context.Context, d Door, ns, text string) ([]corev1.Pod, error) {
	r, err := parse(text)
	if err != nil {
		return nil, err
	}
	return podsOf(ctx, d, ns, r)
}
