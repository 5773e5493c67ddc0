package cluster_test

import (
	"context"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/weftmesh/weft/e2e/internal/cluster"
)

// TestCluster is one long story, since a cluster is dear: up, served, extended,
// hurt, and gone.
func TestCluster(t *testing.T) {
	o := needCluster(t)
	before := traces(t)
	began := time.Now()
	r := up(t, o)
	t.Logf("a cluster with one node took %.1f s", time.Since(began).Seconds())
	if err := r.Load(t.Context(), app(t)); err != nil {
		t.Fatal(err)
	}
	r.serveWeb(t)

	t.Run("a pod reaches a service by its name", func(t *testing.T) {
		log := r.runPod(t, "client", "n1", "get", "http://web/", "http://web.default.svc.cluster.local/")
		if got := strings.Count(log, "web-"); got != 2 {
			t.Errorf("%d answers of web, want 2:\n%s", got, log)
		}
	})
	t.Run("a pod has the API server's address", func(t *testing.T) {
		log := r.runPod(t, "api", "n1", "get", "http://kubernetes.default.svc.cluster.local:443/")
		if !strings.Contains(log, "HTTP request to an HTTPS server") {
			t.Errorf("the API server did not answer:\n%s", log)
		}
	})
	t.Run("a network plugin installs itself in the node alone", func(t *testing.T) {
		r.runPod(t, "plugin", "n1", "write", "{}", "/cni/conf/99-other.conf", "/cni/bin/other")
		if _, err := r.Node("n1").Exec(t.Context(), "stat", "/etc/cni/net.d/99-other.conf", "/opt/cni/bin/other"); err != nil {
			t.Errorf("the node has no plugin: %v", err)
		}
		for _, file := range []string{"/etc/cni/net.d/99-other.conf", "/opt/cni/bin/other"} {
			if _, err := os.Stat(file); err == nil {
				t.Errorf("%s is on the machine, too", file)
			}
		}
	})
	t.Run("a program of the machine looks into the node's network", func(t *testing.T) {
		out, err := r.Node("n1").InNetwork(t.Context(), "ip", "-o", "-4", "addr", "show", "eth0").CombinedOutput()
		if err != nil || !strings.Contains(string(out), r.NodeAddress().String()) {
			t.Errorf("%s, %v", out, err)
		}
	})
	t.Run("a node weighs more than a session beside it", func(t *testing.T) {
		out, err := r.Node("n1").Exec(t.Context(), "cat", "/sys/fs/cgroup/cpu/cpu.shares")
		if err != nil || strings.TrimSpace(string(out)) != "16384" {
			t.Errorf("its share of the processors is %q, %v", out, err)
		}
	})
	t.Run("the machine reaches a NodePort", func(t *testing.T) {
		ask(t, "http://"+r.NodeAddress().String()+":30080/")
	})
	t.Run("the API server is away", func(t *testing.T) { r.loseAPIServer(t) })
	t.Run("a second node", func(t *testing.T) { r.addNode(t) })
	t.Run("a second cluster", func(t *testing.T) { r.addCluster(t) })
	ours := link(o.Dir)
	if err := cluster.Down(t.Context(), cluster.Options{Dir: o.Dir}); err != nil {
		t.Fatal(err)
	}
	before.same(t, o.Dir, ours)
}

// loseAPIServer stops it: what is there goes on, what is new waits.
func (r *rig) loseAPIServer(t *testing.T) {
	t.Helper()
	n := r.Node("n1")
	if err := n.Kill(t.Context(), cluster.APIServer); err != nil {
		t.Fatal(err)
	}
	if out, err := r.tryKubectl(t, "", "get", "nodes"); err == nil {
		t.Errorf("a killed API server answers: %s", out)
	}
	ask(t, "http://"+r.NodeAddress().String()+":30080/")
	states, err := n.States(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if states[cluster.APIServer].Running || !states[cluster.Kubelet].Running {
		t.Errorf("states are %+v, want all but the API server to run", states)
	}
	if err := n.Start(t.Context(), cluster.APIServer); err != nil {
		t.Fatal(err)
	}
	up(t, r.opts) // waits until all is ready
	for _, act := range []func(context.Context, string) error{n.Pause, n.Resume} {
		if err := act(t.Context(), cluster.APIServer); err != nil {
			t.Fatal(err)
		}
	}
	r.kubectl(t, "", "get", "nodes")
}

func (r *rig) addNode(t *testing.T) {
	t.Helper()
	r.opts.Nodes = 2
	began := time.Now()
	two := up(t, r.opts)
	t.Logf("a second node took %.1f s", time.Since(began).Seconds())
	if err := two.Load(t.Context(), app(t)); err != nil {
		t.Fatal(err)
	}
	log := two.runPod(t, "far", "n2", "get", "http://web/", "http://web/", "http://web/", "http://web/")
	if got := strings.Count(log, "web-"); got != 4 {
		t.Errorf("%d answers of web on the other node, want 4:\n%s", got, log)
	}
	zones := two.kubectl(t, "", "get", "nodes", "-o", `jsonpath={.items[*].metadata.labels.topology\.kubernetes\.io/zone}`)
	if zones != "zone-1 zone-2" {
		t.Errorf("the nodes' zones are %q", zones)
	}
	r.Cluster = two.Cluster
}

// addCluster: the pods of both are in one flat network, and each cluster reaches
// the other's node ports. The second one has IPv6 as well.
func (r *rig) addCluster(t *testing.T) {
	t.Helper()
	pod := r.kubectl(t, "", "get", "pods", "-l", "app=web", "-o", "jsonpath={.items[0].status.podIP}")
	o := r.opts
	o.Name, o.Nodes, o.IPv6 = "c2", 1, true
	began := time.Now()
	second := up(t, o)
	t.Logf("a second cluster took %.1f s", time.Since(began).Seconds())
	if err := second.Load(t.Context(), app(t)); err != nil {
		t.Fatal(err)
	}
	log := second.runPod(t, "client", "n1", "get", "http://"+pod+":8080/", "http://"+r.NodeAddress().String()+":30080/")
	if got := strings.Count(log, "web-"); got != 2 {
		t.Errorf("%d answers of the first cluster's web, want 2:\n%s", got, log)
	}
	second.serveWeb(t)
	six := second.kubectl(t, "", "get", "service", "web", "-o", "jsonpath={.spec.clusterIPs[1]}")
	log = second.runPod(t, "client6", "n1", "get", "http://["+six+"]/")
	if !strings.Contains(log, "answers [fd") {
		t.Errorf("web was not asked by IPv6:\n%s", log)
	}
	if err := second.Down(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.kubectl(t, "", "get", "nodes") // the first is unharmed
}

// ask gets the URL from the machine, until it answers.
func ask(t *testing.T, url string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		body, err := once(ctx, url)
		if err == nil && strings.HasPrefix(body, "web-") {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("%s: %q, %v", url, body, err)
		case <-tick.C:
		}
	}
}

func once(ctx context.Context, url string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return "", err
	}
	resp, err := (&http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return string(body), err
}
