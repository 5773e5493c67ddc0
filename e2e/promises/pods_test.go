package promises

import (
	"testing"
)

// pod is what the tests need to know of one.
type pod struct {
	name, node, ip string
	ready          bool
	ending         bool
	restarts       int
	containers     map[string]bool // ready, by name; sidecars too
}

// pods lists the pods that a selector chooses.
func (b *bed) pods(t *testing.T, namespace, selector string) []pod {
	t.Helper()
	out, err := b.tryPods(t, namespace, selector)
	if err != nil || len(out) == 0 {
		t.Fatalf("pods %s in %s: %d, %v", selector, namespace, len(out), err)
	}
	return out
}

func (b *bed) tryPods(t *testing.T, namespace, selector string) ([]pod, error) {
	t.Helper()
	type status struct {
		Name         string
		Ready        bool
		RestartCount int
	}
	var list struct {
		Items []struct {
			Metadata struct {
				Name              string
				DeletionTimestamp *string
			}
			Spec   struct{ NodeName string }
			Status struct {
				PodIP                                    string
				Conditions                               []struct{ Type, Status string }
				ContainerStatuses, InitContainerStatuses []status
			}
		}
	}
	if err := b.read(lasting(t), "/api/v1/namespaces/"+namespace+"/pods?labelSelector="+selector, &list); err != nil {
		return nil, err
	}
	var out []pod
	for _, i := range list.Items {
		p := pod{name: i.Metadata.Name, node: i.Spec.NodeName, ip: i.Status.PodIP, ending: i.Metadata.DeletionTimestamp != nil, containers: map[string]bool{}}
		for _, c := range i.Status.Conditions {
			p.ready = p.ready || c.Type == "Ready" && c.Status == "True"
		}
		for _, s := range append(i.Status.ContainerStatuses, i.Status.InitContainerStatuses...) {
			p.containers[s.Name] = s.Ready
			p.restarts += s.RestartCount
		}
		out = append(out, p)
	}
	return out, nil
}

// rollout waits until a workload is as it shall be.
func (b *bed) rollout(t *testing.T, namespace string, workloads ...string) {
	t.Helper()
	for _, w := range workloads {
		b.kubectl(t, "-n", namespace, "rollout", "status", w, "--timeout="+patience.String())
	}
}
