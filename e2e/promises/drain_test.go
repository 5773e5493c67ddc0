package promises

import (
	"slices"
	"strings"
	"testing"
)

// drained empties a node that the load does not run on. A TCP connection that
// outlives its pod's grace can't be handed over: the ledger's client connects again,
// as such clients do, and the load's report counts that.
func drained(t *testing.T, b *bed) {
	t.Helper()
	stays := b.pods(t, "shop", "app=load")[0].node
	nodes := strings.Fields(b.kubectl(t, "get", "nodes", "-o", "jsonpath={.items[*].metadata.name}"))
	i := slices.IndexFunc(nodes, func(n string) bool { return n != stays })
	if i < 0 {
		t.Skipf("there is no node but %s, where the load is", stays)
	}
	victim := nodes[i]
	for _, tier := range tiers { // a pod of each is there, at the latest after a restart
		if !slices.ContainsFunc(b.pods(t, "shop", "app="+tier.app), func(p pod) bool { return p.node == victim }) {
			b.kubectl(t, "-n", "shop", "rollout", "restart", "deployment/"+tier.app)
			b.rollout(t, "shop", "deployment/"+tier.app)
			b.onlyPods(t, "shop", "app="+tier.app, 2)
		}
	}
	if b.own != nil { // its only DNS server may be there, which no mesh can make up for
		b.kubectl(t, "-n", "kube-system", "scale", "deployment/coredns", "--replicas=2")
		b.rollout(t, "kube-system", "deployment/coredns")
		t.Cleanup(func() { b.kubectl(t, "-n", "kube-system", "scale", "deployment/coredns", "--replicas=1") })
	}
	w := b.watch(t)
	t.Cleanup(func() { b.kubectl(t, "uncordon", victim) })
	b.kubectl(t, "drain", victim, "--ignore-daemonsets", "--delete-emptydir-data", "--force", "--timeout="+patience.String())
	for _, tier := range tiers {
		b.rollout(t, "shop", "deployment/"+tier.app)
	}
	b.rollout(t, controlPlane, everything...)
	w.end(t)
	t.Logf("node %s was drained", victim)
}
