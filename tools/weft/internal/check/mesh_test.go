package check

import (
	"encoding/json"
	"fmt"
	"maps"
	"testing"
)

// pattern is what mesh copies: making its keys takes a while. Tests that use it
// do not run in parallel.
var pattern *cluster

// mesh is a cluster where all is well.
func mesh(t *testing.T) *cluster {
	t.Helper()
	if pattern == nil {
		pattern = newMesh(t)
	}
	c := &cluster{pages: maps.Clone(pattern.pages), denied: map[string]bool{}, failing: map[string]error{}}
	for _, o := range pattern.objects {
		c.objects = append(c.objects, o.DeepCopy())
	}
	return c
}

func newMesh(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{pages: map[string]string{"/version": `{"gitVersion":"v1.37.2"}`}, denied: map[string]bool{}, failing: map[string]error{}}
	root := issue(t, "root.linkerd.cluster.local", nil, 3650)
	issuer := issue(t, "identity.linkerd.cluster.local", root, 365)
	c.add(t, secret("linkerd-identity-issuer", "crt.pem", issuer.cert, "key.pem", issuer.key))
	c.add(t, fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: linkerd-identity-trust-roots, namespace: linkerd}\ndata: {ca-bundle.crt: %s}\n", quoted(root.cert)))
	c.add(t, `
apiVersion: v1
kind: ConfigMap
metadata: {name: linkerd-config, namespace: linkerd}
data:
  values: |
    linkerdVersion: v1
    clusterNetworks: "10.0.0.0/8,fd00::/8"
    identity: {issuer: {scheme: linkerd.io/tls}}
    highAvailability: false
`)
	hook := issue(t, "webhook-ca", nil, 365)
	for _, h := range hooks {
		host := h.host + ".linkerd.svc"
		leaf := issue(t, host, hook, 365, host)
		c.add(t, secret(h.secret, "tls.crt", leaf.cert, "tls.key", leaf.key))
		kind := "ValidatingWebhookConfiguration"
		if h.name == "proxy-injector" {
			kind = "MutatingWebhookConfiguration"
		}
		c.add(t, fmt.Sprintf("apiVersion: admissionregistration.k8s.io/v1\nkind: %s\nmetadata: {name: %s}\nwebhooks: [{name: x, clientConfig: {caBundle: %s}}]\n", kind, h.config, b64(hook.cert)))
	}
	busCA := issue(t, "weft-bus-ca", nil, 365)
	c.add(t, secret("weft-bus-ca", "tls.crt", busCA.cert, "tls.key", busCA.key))
	for _, name := range []string{"weft-nats-tls", "weft-bus-watcher", "weft-bus-destination"} {
		leaf := issue(t, name, busCA, 365, name)
		c.add(t, secret(name, "tls.crt", leaf.cert, "tls.key", leaf.key, "ca.crt", busCA.cert))
	}
	for _, name := range crdNames {
		c.add(t, "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: "+name+"}\n")
	}
	for _, name := range gatewayCRDs {
		c.add(t, "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: "+name+", annotations: {"+bundleVersion+": v1.2.0}}\nspec: {versions: [{name: v1beta1, served: true}, {name: v1, served: true}]}\n")
	}
	w := &World{Namespace: "linkerd"}
	for _, name := range w.roles() {
		c.add(t, "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: "+name+"}\n---\napiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRoleBinding\nmetadata: {name: "+name+"}\n")
	}
	for _, name := range append([]string{"linkerd-heartbeat"}, accounts...) {
		c.add(t, "apiVersion: v1\nkind: ServiceAccount\nmetadata: {namespace: linkerd, name: "+name+"}\n")
	}
	for _, name := range deployments {
		c.add(t, "apiVersion: apps/v1\nkind: Deployment\nmetadata: {namespace: linkerd, name: "+name+"}\nspec: {replicas: 1}\nstatus: {readyReplicas: 1}\n")
	}
	c.add(t, "apiVersion: v1\nkind: Namespace\nmetadata: {name: linkerd}\n---\napiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n")
	c.add(t, `
apiVersion: v1
kind: Node
metadata: {name: node-1}
spec: {podCIDRs: [10.1.0.0/24]}
status:
  nodeInfo: {containerRuntimeVersion: "containerd://1.6.20"}
  conditions: [{type: Ready, status: "True", lastHeartbeatTime: "2026-11-30T11:58:00Z"}]
`)
	for i, component := range components {
		c.add(t, pod("linkerd", component+"-1", fmt.Sprintf("10.1.0.%d", i+1), component, 9990))
		c.pages[component+"-1:9990/metrics"] = "weft_bus_connected{cluster=\"local\"} 1\nweft_bus_synced{cluster=\"local\"} 1\nweft_bus_stale{cluster=\"local\"} 0\nweft_bus_epoch{cluster=\"local\"} 3\nweft_bus_seq{cluster=\"local\"} 70\n"
	}
	c.pages["watcher-1:9990/metrics"] += "weft_watcher_leader 1\nweft_watcher_skipped_objects 0\n"
	c.add(t, "apiVersion: apps/v1\nkind: StatefulSet\nmetadata: {namespace: linkerd, name: weft-nats}\nspec: {replicas: 3}\nstatus: {readyReplicas: 3}\n")
	for i := range 3 {
		name := fmt.Sprintf("weft-nats-%d", i)
		c.add(t, pod("linkerd", name, fmt.Sprintf("10.1.0.%d", 20+i), "nats", 8222))
		c.pages[name+":8222/routez"] = fmt.Sprintf(`{"server_id":"N%d","routes":[{"remote_id":"N%d"},{"remote_id":"N%d"}]}`, i, (i+1)%3, (i+2)%3)
	}
	c.add(t, pod("shop", "web-1", "10.1.0.40", "", 4191))
	c.add(t, "apiVersion: v1\nkind: Service\nmetadata: {namespace: shop, name: web}\nspec: {selector: {app: web-1}, clusterIPs: [10.96.0.1], ports: [{port: 80, targetPort: 8080}]}\n")
	return c
}

// pod is a meshed pod whose proxy is a native sidecar.
func pod(ns, name, ip, component string, port int) string {
	return fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata:
  namespace: %s
  name: %s
  labels: {linkerd.io/control-plane-ns: linkerd, linkerd.io/control-plane-component: %q, app: %s}
  annotations: {linkerd.io/proxy-version: v1}
spec:
  initContainers: [{name: linkerd-proxy, image: "ghcr.io/weftmesh/proxy:v1", restartPolicy: Always, ports: [{name: linkerd-admin, containerPort: 4191}]}]
  containers: [{name: main, ports: [{name: main-admin, containerPort: %d}]}]
status:
  phase: Running
  podIPs: [{ip: %s}]
  initContainerStatuses: [{name: linkerd-proxy, ready: true, state: {running: {}}}]
  containerStatuses: [{name: main, ready: true, state: {running: {}}}]
`, ns, name, component, name, port, ip)
}

func quoted(text string) string {
	b, err := json.Marshal(text)
	if err != nil {
		panic(err)
	}
	return string(b)
}
