package proxy

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weftmesh/weft/e2e/internal/proc"
)

// Where the pods are: on loopback addresses that no other test uses.
const (
	clientIP = "127.7.0.1"
	booksIP  = "127.7.0.2" // meshed
	plainIP  = "127.7.0.3" // the same application, without a proxy
)

// newMesh starts a control plane over a directory of manifests and the proxies of
// client and books, and returns how to reach plain in one hop and books in two.
func newMesh(t *testing.T) subject {
	t.Helper()
	manifests, state := t.TempDir(), t.TempDir()
	documents := `{apiVersion: v1, kind: Namespace, metadata: {name: shop}}` +
		service("books", "10.96.7.1", 8080) + service("books-bytes", "10.96.7.3", 8081) + service("plain", "10.96.7.2", 8080) +
		pod("client", clientIP, true) + pod("books", booksIP, true) + pod("plain", plainIP, false)
	if err := os.WriteFile(filepath.Join(manifests, "shop.yaml"), []byte(documents), 0o600); err != nil {
		t.Fatal(err)
	}
	certs := exec.CommandContext(t.Context(), proc.Binary(t, "weft"), "dev-certs", "--dir", state,
		"--token", "shop/client", "--token", "shop/books")
	if out, err := certs.CombinedOutput(); err != nil {
		t.Fatalf("weft dev-certs: %v\n%s", err, out)
	}

	bus := []string{"-bus.servers", proc.NATS(t), "-bus.cluster", "local"}
	proc.Service(t, "watcher", nil, append(bus, "-source", "dir", "-dir", manifests)...)
	destination, policy, identity := proc.FreePort(t), proc.FreePort(t), proc.FreePort(t)
	proc.Service(t, "destination", nil, append(bus, "-listen", destination, "-outbound-transport-mode", "transport-header")...)
	proc.Service(t, "policy", nil, append(bus, "-listen", policy)...)
	proc.Service(t, "identity", nil, append(bus, "-listen", identity, "-controller-namespace", "linkerd",
		"-identity-trust-domain", "cluster.local", "-identity-scheme", "kubernetes.io/tls",
		"-issuer", filepath.Join(state, "issuer"), "-trust-anchors", filepath.Join(state, "ca-bundle.crt"),
		"-tokens", "jwks:"+filepath.Join(state, "token-keys.json"))...)

	sidecar := func(name, ip string) int {
		return weftProxy(t, state, name, ip, map[string]string{
			"DESTINATION_SVC_ADDR": destination, "POLICY_SVC_ADDR": policy, "IDENTITY_SVC_ADDR": identity,
		})
	}
	out, in := sidecar("client", clientIP), sidecar("books", booksIP)
	mesh := subject{name: ours, hops: [3]hop{
		{addr: clientIP + ":4140", target: "plain.shop.svc.cluster.local:8080", pids: []int{out}},
		{addr: clientIP + ":4140", target: "books.shop.svc.cluster.local:8080", pids: []int{out, in}},
		{addr: clientIP + ":4140", target: "books.shop.svc.cluster.local:8080", pids: []int{out, in}},
	}, bytes: hop{addr: clientIP + ":4140", target: "books-bytes.shop.svc.cluster.local:8081", pids: []int{out, in}}}
	for _, to := range mesh.hops {
		proc.Eventually(t, to.target+" answers", func() error {
			c, err := dial(row{conns: 1}, to)
			if err != nil {
				return err
			}
			c.Close()
			return nil
		})
	}
	proc.Eventually(t, mesh.bytes.target+" sends", func() error {
		conn, in, err := openStream(mesh.bytes)
		if err != nil {
			return err
		}
		defer conn.Close()
		_, err = io.CopyN(io.Discard, in, 1000)
		return err
	})
	return mesh
}

// weftProxy starts the proxy of a pod, waits until it is ready, and returns its number.
func weftProxy(t *testing.T, state, name, ip string, env map[string]string) int {
	t.Helper()
	anchors, err := os.ReadFile(filepath.Join(state, "ca-bundle.crt"))
	if err != nil {
		t.Fatal(err)
	}
	workload := fmt.Sprintf(`{"ns":"shop","pod":%q}`, name)
	var environ []string
	for _, settings := range []map[string]string{env, {
		"INBOUND_LISTEN_ADDR": ip + ":4143", "OUTBOUND_LISTEN_ADDR": ip + ":4140",
		"ADMIN_LISTEN_ADDR": ip + ":4191", "CONTROL_LISTEN_ADDR": ip + ":4190",
		"INBOUND_IPS": ip, "INBOUND_PORTS": "8080", "INBOUND_DEFAULT_POLICY": "all-unauthenticated",
		"DESTINATION_CONTEXT": workload, "POLICY_WORKLOAD": workload, "DESTINATION_PROFILE_SUFFIXES": "svc.cluster.local.",
		"DESTINATION_PROFILE_NETWORKS": "10.0.0.0/8,127.0.0.0/8", "POLICY_CLUSTER_NETWORKS": "10.0.0.0/8,127.0.0.0/8",
		"IDENTITY_DIR": t.TempDir(), "IDENTITY_TRUST_ANCHORS": string(anchors),
		"IDENTITY_TOKEN_FILE": filepath.Join(state, "tokens", "shop", name),
		"IDENTITY_LOCAL_NAME": name + ".shop.serviceaccount.identity.linkerd.cluster.local",
		"CORES":               "1", "CORES_MAX": "1",
		// A busy machine is no reason for a request to fail.
		"INBOUND_CONNECT_TIMEOUT": "30s", "OUTBOUND_CONNECT_TIMEOUT": "30s",
	}} {
		for key, value := range settings {
			environ = append(environ, "LINKERD2_PROXY_"+key+"="+value)
		}
	}
	pid := launch(t, proxyCore, environ, proc.Binary(t, "weft-proxy"))
	proc.Eventually(t, "the proxy of "+name+" is ready", func() error {
		client := http.Client{Timeout: 2 * time.Second}
		resp, err := client.Get("http://" + ip + ":4191/ready")
		if err != nil {
			return err
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("/ready answers %s", resp.Status)
		}
		return nil
	})
	return pid
}

// service is of the pod whose name its own begins with. Port 8081 carries bytes.
func service(name, ip string, port int) string {
	app, _, bytes := strings.Cut(name, "-")
	opaque := ""
	if bytes {
		opaque = `, annotations: {config.linkerd.io/opaque-ports: "8081"}`
	}
	return fmt.Sprintf("\n---\n"+`{apiVersion: v1, kind: Service, metadata: {name: %s, namespace: shop%[5]s},
  spec: {clusterIP: %[2]q, clusterIPs: [%[2]q], selector: {app: %[3]s}, ports: [{name: all, port: %[4]d}]}}`, name, ip, app, port, opaque)
}

func pod(name, ip string, meshed bool) string {
	label, proxy := "", ""
	if meshed {
		label = `, linkerd.io/control-plane-ns: linkerd`
		proxy = `, {name: linkerd-proxy, image: weft-proxy, env: [
      {name: LINKERD2_PROXY_INBOUND_LISTEN_ADDR, value: "0.0.0.0:4143"},
      {name: LINKERD2_PROXY_ADMIN_LISTEN_ADDR, value: "0.0.0.0:4191"},
      {name: LINKERD2_PROXY_CONTROL_LISTEN_ADDR, value: "0.0.0.0:4190"}]}`
	}
	return fmt.Sprintf("\n---\n"+`{apiVersion: v1, kind: Pod, metadata: {name: %s, namespace: shop, labels: {app: %[1]s%[2]s}, annotations: {config.linkerd.io/opaque-ports: "8081"}},
  spec: {nodeName: here, serviceAccountName: %[1]s, containers: [{name: app, image: x, ports: [{name: http, containerPort: 8080}, {name: bytes, containerPort: 8081}]}%[3]s]},
  status: {phase: Running, podIP: %[4]q, podIPs: [{ip: %[4]q}], conditions: [{type: Ready, status: "True"}]}}`,
		name, label, proxy, ip)
}
