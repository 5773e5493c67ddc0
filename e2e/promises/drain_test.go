package promises

import (
	"testing"
)

// drained empties the node that the load does not run on.
func drained(t *testing.T, b *bed) {
	t.Helper()
	stays := b.pods(t, "shop", "app=load")[0].node
	victim := ""
	for _, p := range b.pods(t, "shop", "app=web") {
		if p.node != stays {
			victim = p.node
		}
	}
	if victim == "" {
		t.Skipf("every pod of web is on node %s, where the load is; the promise needs a second node", stays)
	}
	w := b.watch(t)
	t.Cleanup(func() { b.kubectl(t, "uncordon", victim) })
	b.kubectl(t, "drain", victim, "--ignore-daemonsets", "--delete-emptydir-data", "--force", "--timeout="+patience.String())
	for _, tier := range tiers {
		b.rollout(t, "shop", "deployment/"+tier.app)
	}
	b.rollout(t, controlPlane, append(workloads, "statefulset/weft-nats")...)
	w.end(t)
	t.Logf("node %s was drained", victim)
}
