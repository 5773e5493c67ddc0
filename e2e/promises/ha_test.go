package promises

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"
)

// weftApply gives what a weft command prints to kubectl, as its help says.
func (b *bed) weftApply(t *testing.T, args ...string) {
	t.Helper()
	b.pipe(t, []string{"apply", "-f", "-"}, args...)
}

func (b *bed) pipe(t *testing.T, kubectl []string, args ...string) {
	t.Helper()
	manifests, err := b.weft(t, args...)
	if err != nil {
		t.Fatal(err)
	}
	if out, err := b.run(t, manifests, b.tool("hyperkube"), append([]string{"kubectl"}, kubectl...)...); err != nil {
		t.Fatalf("weft %s | kubectl %s: %v\n%s", strings.Join(args, " "), strings.Join(kubectl, " "), err, out)
	}
}

// parts of the control plane, and of how many there are three with values-ha.yaml.
var parts = []string{"identity", "destination", "policy", "proxy-injector", "watcher"}

func installedHA(t *testing.T, b *bed) {
	t.Helper()
	b.skipInstalled(t)
	b.weftApply(t, "install", "--crds", "--set", "installGatewayAPI=true")
	// Proxies have their usual patience with a node that does not answer, or nearly.
	b.weftApply(t, append(append([]string{"install", "--ha"}, b.ownValues()...), "--set", "proxy.outboundConnectTimeout=2s")...)
	b.checked(t)
	b.spread(t)
}

// spread looks whether three of each part are on three nodes.
func (b *bed) spread(t *testing.T) {
	t.Helper()
	selectors := []string{"app.kubernetes.io/name=weft-nats"}
	for _, part := range parts {
		selectors = append(selectors, "linkerd.io/control-plane-component="+part)
	}
	for _, s := range selectors {
		nodes := map[string]bool{}
		pods := b.pods(t, controlPlane, s)
		for _, p := range pods {
			nodes[p.node] = true
		}
		if len(pods) != 3 || len(nodes) != 3 {
			t.Errorf("%d pods of %s are on %d nodes, want three on three", len(pods), s, len(nodes))
		}
	}
}

// unnoticed is how long a proxy on a starved machine may take to see that a
// connection has ended: what it has written to it by then may have been done, so that
// it can't be sent again.
const unnoticed = 3 * time.Second

// nodeDied takes a node away as a power cut would, with a third of the control plane
// and of the shop. What was under way there is lost with it; nothing that began
// afterwards may be, although Kubernetes takes most of a minute to notice.
func nodeDied(t *testing.T, b *bed) {
	t.Helper()
	if b.own == nil {
		t.Skip("a node can be killed only on a cluster that is started here")
	}
	for _, tier := range tiers {
		b.kubectl(t, "-n", "shop", "scale", "deployment/"+tier.app, "--replicas=3")
	}
	for _, tier := range tiers {
		b.rollout(t, "shop", "deployment/"+tier.app)
	}
	stays := b.pods(t, "shop", "app=load")[0].node
	victim := ""
	for _, p := range b.pods(t, "shop", "app=web") {
		if p.node != stays && p.node != "n1" { // which has the API server
			victim = p.node
		}
	}
	if victim == "" {
		t.Fatalf("web is not spread over the nodes: %+v", b.pods(t, "shop", "app=web"))
	}
	w := b.watch(t)
	began := time.Now()
	if err := b.own.Node(victim).Crash(t.Context()); err != nil {
		t.Fatal(err)
	}
	dead := time.Now()
	back := false
	revive := func() {
		if !back {
			back = true
			b.up(t, true)
		}
	}
	t.Cleanup(revive)
	t.Logf("node %s died at %s, within %s", victim, dead.UTC().Format("15:04:05.000"), dead.Sub(began).Round(time.Millisecond))
	until(t, patience, "Kubernetes to notice", func() error {
		out := b.kubectl(t, "get", "node", victim, "-o", `jsonpath={.status.conditions[?(@.type=="Ready")].status}`)
		if out == "True" {
			return errors.New("the node is ready")
		}
		return nil
	})
	t.Logf("Kubernetes noticed after %s", time.Since(dead).Round(time.Second))
	// What is left of the control plane brings news: a new endpoint gets requests.
	old := map[string]bool{}
	for _, p := range b.pods(t, "shop", "app=web") {
		old[p.name] = true
	}
	b.kubectl(t, "-n", "shop", "scale", "deployment/web", "--replicas=4")
	until(t, patience, "a new pod of web", func() error {
		for _, p := range b.pods(t, "shop", "app=web") {
			if !old[p.name] && p.ready {
				b.requested(t, time.Minute, p.name)
				return nil
			}
		}
		return errors.New("none is ready")
	})
	w.endExcept(t, func(f failure) bool { return f.Began.Before(dead.Add(unnoticed)) })

	revive()
	b.rollout(t, controlPlane, everything...)
	for _, tier := range tiers {
		b.kubectl(t, "-n", "shop", "scale", "deployment/"+tier.app, "--replicas=2")
	}
	for _, tier := range tiers {
		b.onlyPods(t, "shop", "app="+tier.app, 2)
	}
	b.spread(t)
}

// anchored replaces the trust anchor with the command that people would use. It
// restarts every meshed pod, the load's and the control plane's too.
func anchored(t *testing.T, b *bed) {
	t.Helper()
	w := b.watch(t)
	before := b.anchors(t)
	out, err := b.weft(t, "identity", "rotate", "trust-anchor", "--generate", "--lifetime", "48h", "--restart", "--wait", patience.String())
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Log(out)
	after := b.anchors(t)
	if strings.Count(after, "BEGIN CERTIFICATE") != 1 || after == before {
		t.Errorf("the bundle is not one new anchor:\n%s\nbefore:\n%s", after, before)
	}
	b.rollout(t, controlPlane, everything...)
	for _, tier := range tiers {
		b.rollout(t, "shop", "deployment/"+tier.app)
	}
	w.end(t)
}

// anchors are the certificates that proxies trust.
func (b *bed) anchors(t *testing.T) string {
	t.Helper()
	return strings.TrimSpace(b.kubectl(t, "-n", controlPlane, "get", "configmap", "linkerd-identity-trust-roots", "-o", `jsonpath={.data.ca-bundle\.crt}`))
}

// plugged moves a mesh that carries traffic from linkerd-init to the plugin: the
// plugin first, then the control plane's setting, then the pods, old beside new.
func plugged(t *testing.T, b *bed) {
	t.Helper()
	w := b.watch(t)
	b.weftApply(t, b.cniArgs("install-cni")...)
	b.rollout(t, "linkerd-cni", "daemonset/linkerd-cni")
	b.weftApply(t, "upgrade", "--set", "cniEnabled=true")
	b.checked(t)
	apps := []string{"load"}
	for _, tier := range tiers {
		apps = append(apps, tier.app)
	}
	for _, app := range apps {
		b.kubectl(t, "-n", "shop", "rollout", "restart", "deployment/"+app)
	}
	meshed := 0
	for _, app := range apps {
		b.rollout(t, "shop", "deployment/"+app)
	}
	for _, app := range apps {
		n, err := strconv.Atoi(b.kubectl(t, "-n", "shop", "get", "deployment/"+app, "-o", "jsonpath={.spec.replicas}"))
		if err != nil {
			t.Fatal(err)
		}
		b.onlyPods(t, "shop", "app="+app, n)
		for _, p := range b.pods(t, "shop", "app="+app) {
			_, init := p.containers["linkerd-init"]
			_, validator := p.containers["linkerd-network-validator"]
			if init || !validator || !p.containers["linkerd-proxy"] {
				t.Errorf("%s has containers %v, want a validator and no linkerd-init", p.name, p.containers)
			}
			meshed++
		}
	}
	t.Logf("%d pods have no linkerd-init", meshed)
	proved(t, b)
	w.end(t)
}

func (b *bed) cniArgs(command string) []string {
	args := []string{command, "--registry", *registry, "--cni-image-version", *tag}
	if b.own != nil {
		args = append(args, "--set", "image.pullPolicy=Never")
	}
	return args
}

// removed does what weft uninstall's help says.
func removed(t *testing.T, b *bed) {
	t.Helper()
	if *state != "" {
		t.Skip("-state keeps what is there")
	}
	b.kubectl(t, "delete", "namespace", "shop", "--ignore-not-found", "--timeout="+patience.String())
	gone := []string{"delete", "-f", "-", "--ignore-not-found", "--timeout=" + patience.String()}
	b.pipe(t, gone, b.cniArgs("install-cni")...)
	b.pipe(t, gone, "uninstall")
	b.nothingLeft(t, fmt.Sprintf("weft uninstall | kubectl %s", strings.Join(gone, " ")))
}
