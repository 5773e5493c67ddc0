package mesh

import "fmt"

const namespaceShop = `{apiVersion: v1, kind: Namespace, metadata: {name: shop}}`

// serviceOf is a Service of namespace shop that selects app=<name>.
func serviceOf(name, clusterIP string, port int) string {
	return fmt.Sprintf(`{apiVersion: v1, kind: Service, metadata: {name: %s, namespace: shop},
  spec: {clusterIP: %q, clusterIPs: [%q], selector: {app: %s}, ports: [{name: http, port: %d}]}}`, name, clusterIP, clusterIP, name, port)
}

// podOf is a running, ready pod; a meshed one has a proxy as the injector leaves it.
func podOf(name, app, ip string, port int, meshed bool) string {
	label, proxy := "", ""
	if meshed {
		label = `, linkerd.io/control-plane-ns: linkerd`
		proxy = `, {name: linkerd-proxy, image: weft-proxy, env: [
      {name: LINKERD2_PROXY_INBOUND_LISTEN_ADDR, value: "0.0.0.0:4143"},
      {name: LINKERD2_PROXY_ADMIN_LISTEN_ADDR, value: "0.0.0.0:4191"},
      {name: LINKERD2_PROXY_CONTROL_LISTEN_ADDR, value: "0.0.0.0:4190"}]}`
	}
	return fmt.Sprintf(`{apiVersion: v1, kind: Pod, metadata: {name: %s, namespace: shop, labels: {app: %s%s}},
  spec: {nodeName: here, serviceAccountName: %s, containers: [{name: app, image: x, ports: [{name: http, containerPort: %d}]}%s]},
  status: {phase: Running, podIP: %q, podIPs: [{ip: %q}], conditions: [{type: Ready, status: "True"}]}}`,
		name, app, label, app, port, proxy, ip, ip)
}
