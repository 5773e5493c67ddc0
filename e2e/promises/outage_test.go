package promises

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/weftmesh/weft/e2e/internal/cluster"
	"github.com/weftmesh/weft/e2e/internal/node"
)

// busLost deletes the bus's servers one by one, then all; afterwards news travels
// as before.
func busLost(t *testing.T, b *bed) {
	t.Helper()
	w := b.watch(t)
	for _, p := range b.pods(t, controlPlane, "app.kubernetes.io/name=weft-nats") {
		b.kubectl(t, "-n", controlPlane, "delete", "pod", p.name, "--wait=true")
		b.rollout(t, controlPlane, "statefulset/weft-nats")
	}
	b.kubectl(t, "-n", controlPlane, "delete", "pod", "-l", "app.kubernetes.io/name=weft-nats", "--wait=true")
	b.rollout(t, controlPlane, "statefulset/weft-nats")
	back := time.Now()

	old := map[string]bool{}
	for _, p := range b.pods(t, "shop", "app=web") {
		old[p.name] = true
	}
	b.kubectl(t, "-n", "shop", "scale", "deployment/web", "--replicas=3")
	t.Cleanup(func() {
		b.kubectl(t, "-n", "shop", "scale", "deployment/web", "--replicas=2")
		b.onlyPods(t, "shop", "app=web", 2)
	})
	b.rollout(t, "shop", "deployment/web")
	ready := time.Now()
	for _, p := range b.pods(t, "shop", "app=web") {
		if old[p.name] {
			continue
		}
		b.requested(t, 10*time.Second, p.name)
	}
	t.Logf("a new endpoint got requests %s after it was ready, %s after the servers were",
		time.Since(ready).Round(time.Millisecond), time.Since(back).Round(time.Millisecond))
	w.end(t)
}

// apiDown stops the API server for a minute. A destination that is restarted in
// that time gets its state from another process.
func apiDown(t *testing.T, b *bed) {
	t.Helper()
	if b.own == nil {
		t.Skip("the API server can be stopped only on a cluster that is started here")
	}
	w := b.watch(t)
	victim := b.pods(t, controlPlane, "linkerd.io/control-plane-component=destination")[0]
	began := time.Now()
	n1 := b.own.Node("n1")
	if err := n1.Stop(t.Context(), cluster.APIServer); err != nil {
		t.Fatal(err)
	}
	started := false
	t.Cleanup(func() {
		if !started {
			_ = n1.Start(lasting(t), cluster.APIServer)
		}
	})
	killContainer(t, b.own.Node(victim.node), victim.name, "destination")
	until(t, patience, "a destination that has no API server to ask", func() error {
		resp, err := http.Get("http://" + victim.ip + ":9996/ready")
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		body, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<10))
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("%d %s", resp.StatusCode, body)
		}
		return nil
	})
	t.Logf("a restarted destination was ready again while the API server was down, %s after that began", time.Since(began).Round(time.Millisecond))
	pass(t, time.Until(began.Add(time.Minute)))
	if err := n1.Start(lasting(t), cluster.APIServer); err != nil {
		t.Fatal(err)
	}
	started = true
	t.Logf("the API server was down for %s", time.Since(began).Round(time.Second))
	until(t, patience, "the API server", func() error {
		_, err := b.get(lasting(t), "/readyz")
		return err
	})
	b.rollout(t, controlPlane, workloads...)
	w.end(t)
}

// killContainer kills a container's process through the node's containerd. The
// kubelet starts it anew.
func killContainer(t *testing.T, n *node.Node, pod, container string) {
	t.Helper()
	ctr := []string{"ctr", "--address", "/run/containerd/containerd.sock", "-n", "k8s.io"}
	out, err := n.Exec(t.Context(), append(ctr, "containers", "ls", "-q",
		fmt.Sprintf("labels.\"io.kubernetes.pod.name\"==%s,labels.\"io.kubernetes.container.name\"==%s", pod, container))...)
	ids := strings.Fields(string(out))
	if err != nil || len(ids) == 0 {
		t.Fatalf("no container %s of %s on node %s: %v", container, pod, n.Host, err)
	}
	killed := false
	for _, id := range ids {
		_, err = n.Exec(t.Context(), append(ctr, "tasks", "kill", "-s", "SIGKILL", id)...)
		killed = killed || err == nil
	}
	if !killed {
		t.Fatalf("killing %s of %s: %v", container, pod, err)
	}
}
