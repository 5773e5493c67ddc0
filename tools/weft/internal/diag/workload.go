package diag

import (
	"context"

	"google.golang.org/grpc"
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

// Pods lists the pods of a namespace, of all if it is empty, by name.
func Pods(ctx context.Context, d Door, ns string) ([]corev1.Pod, error) {
	return listPods(ctx, d, ns, "")
}

// PolicyAPI connects to the policy API in the control plane's namespace: in the
// pod that is named, else in one that is ready. Who calls it closes the
// connection.
func PolicyAPI(ctx context.Context, d Door, mesh, pod string) (*grpc.ClientConn, error) {
	named, err := serving(ctx, d, mesh, pod, policyPort, "the policy API")
	if err != nil {
		return nil, err
	}
	return dial(d, mesh, named, policyPort)
}
