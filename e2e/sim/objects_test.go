package sim

import (
	"fmt"
	"slices"
	"strings"
)

func serviceName(s int) string { return fmt.Sprint("web-", s) }

func podName(pod int) string { return fmt.Sprint("pod-", pod) }

// address is a pod's own for ever: no two pods have the same.
func address(pod int) string { return fmt.Sprintf("%s:%d", podIP(pod), port) }

func podIP(pod int) string { return fmt.Sprintf("10.1.%d.%d", pod>>8, pod&255) }

func serviceManifest(s int) string {
	return fmt.Sprintf(`
apiVersion: v1
kind: Service
metadata: {namespace: shop, name: %[1]s, uid: s%[2]d}
spec:
  clusterIP: 10.2.0.%[2]d
  clusterIPs: [10.2.0.%[2]d]
  ports: [{name: http, port: %[3]d, targetPort: %[3]d}]
`, serviceName(s), s+1, port)
}

// protocols of a Server, by number, as it is written and as clients say it.
var protocols = [][2]string{{"unknown", "detect"}, {"HTTP/2", "http2"}, {"opaque", "opaque"}}

// server writes the Server of a Service, which denies, and the policy that lets
// one client in if there is one.
func (w *world) server(s int) {
	w.apply(fmt.Sprintf(`
apiVersion: policy.linkerd.io/v1beta3
kind: Server
metadata: {namespace: shop, name: %[1]s, uid: srv%[1]s, creationTimestamp: "2026-01-01T00:00:00Z"}
spec: {podSelector: {matchLabels: {app: %[1]s}}, port: %[2]d, proxyProtocol: %[3]s, accessPolicy: deny}
---
apiVersion: policy.linkerd.io/v1alpha1
kind: MeshTLSAuthentication
metadata: {namespace: shop, name: clients, uid: mtls}
spec: {identities: [client.shop.serviceaccount.identity.linkerd.cluster.local]}
`, serviceName(s), port, protocols[w.proto[s]][0]))
	if !w.allow[s] {
		w.api.Delete("AuthorizationPolicy", "shop", serviceName(s))
		return
	}
	w.apply(fmt.Sprintf(`
apiVersion: policy.linkerd.io/v1alpha1
kind: AuthorizationPolicy
metadata: {namespace: shop, name: %[1]s, uid: ap%[1]s, creationTimestamp: "2026-01-01T00:00:00Z"}
spec:
  targetRef: {group: policy.linkerd.io, kind: Server, name: %[1]s}
  requiredAuthenticationRefs: [{group: policy.linkerd.io, kind: MeshTLSAuthentication, name: clients}]
`, serviceName(s)))
}

// verdict is what a proxy must be told in the end.
func (w *world) verdict(pod int) string {
	s := pod % services
	who := "nobody"
	if w.allow[s] {
		who = "client.shop"
	}
	return protocols[w.proto[s]][1] + ", " + who
}

func (w *world) pod(pod int) {
	s := pod % services
	w.apply(fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata:
  namespace: shop
  name: %[1]s
  uid: p%[2]d
  labels: {app: %[3]s, linkerd.io/control-plane-ns: linkerd}
spec:
  serviceAccountName: %[3]s
  nodeName: n%[4]d
  containers:
    - name: main
      ports: [{name: http, containerPort: %[5]d}]
    - name: linkerd-proxy
      env:
        - {name: LINKERD2_PROXY_INBOUND_LISTEN_ADDR, value: "0.0.0.0:4143"}
        - {name: LINKERD2_PROXY_ADMIN_LISTEN_ADDR, value: "0.0.0.0:4191"}
        - {name: LINKERD2_PROXY_CONTROL_LISTEN_ADDR, value: "0.0.0.0:4190"}
status: {phase: Running, podIP: %[6]s, podIPs: [{ip: %[6]s}], conditions: [{type: Ready, status: "True"}]}
`, podName(pod), pod, serviceName(s), pod%2, port, podIP(pod)))
}

// slice writes a Service's EndpointSlice with its pods as they are.
func (w *world) slice(s int) {
	var b strings.Builder
	fmt.Fprintf(&b, `
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {namespace: shop, name: %[1]s-x, uid: e%[1]s, labels: {kubernetes.io/service-name: %[1]s}}
addressType: IPv4
ports: [{name: http, port: %[2]d}]
endpoints:
`, serviceName(s), port)
	n := 0
	for _, pod := range w.pods {
		if pod%services == s {
			n++
			fmt.Fprintf(&b, "  - {addresses: [%s], conditions: {ready: true}, nodeName: n%d, targetRef: {kind: Pod, namespace: shop, name: %s}}\n", podIP(pod), pod%2, podName(pod))
		}
	}
	text := b.String()
	if n == 0 {
		text = strings.TrimSuffix(text, "endpoints:\n") + "endpoints: []\n"
	}
	w.apply(text)
}

// addPod makes a pod and then its endpoint, as Kubernetes does.
func (w *world) addPod() {
	pod := w.next
	w.next++
	w.pods = append(w.pods, pod)
	w.pod(pod)
	w.slice(pod % services)
	for _, j := range w.judges {
		w.askPolicy(j, pod)
	}
}

// removePod takes the n-th pod away, its endpoint first or last.
func (w *world) removePod(n int, podFirst bool) {
	if len(w.pods) == 0 {
		return
	}
	pod := w.pods[n%len(w.pods)]
	w.pods = slices.DeleteFunc(w.pods, func(p int) bool { return p == pod })
	w.stop(func(c *client) bool { return c.pod == pod })
	if podFirst {
		w.api.Delete("Pod", "shop", podName(pod))
		w.slice(pod % services)
		return
	}
	w.slice(pod % services)
	w.api.Delete("Pod", "shop", podName(pod))
}
