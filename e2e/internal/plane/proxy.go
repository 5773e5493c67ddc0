package plane

import (
	"maps"
	"os"
	"path/filepath"
	"testing"

	"github.com/weftmesh/weft/e2e/internal/proc"
)

// Identity is what the proxy of a workload is called in its certificate.
func Identity(name string) string {
	return name + ".shop.serviceaccount.identity.linkerd.cluster.local"
}

// Proxy starts the proxy of a workload that has an address of loopback to itself,
// and waits until it is ready. env are variables without their prefix; they win.
func (p *Plane) Proxy(t testing.TB, name, ip string, env map[string]string) *proc.Process {
	t.Helper()
	dir := t.TempDir()
	token := filepath.Join(dir, "token")
	if err := os.WriteFile(token, []byte("token"), 0o600); err != nil {
		t.Fatal(err)
	}
	all := map[string]string{
		"INBOUND_LISTEN_ADDR": ip + ":4143", "OUTBOUND_LISTEN_ADDR": ip + ":4140", "ADMIN_LISTEN_ADDR": ip + ":4191", "CONTROL_LISTEN_ADDR": ip + ":4190",
		"INBOUND_IPS": ip, "INBOUND_DEFAULT_POLICY": "all-unauthenticated",
		"DESTINATION_SVC_ADDR": p.Addr, "POLICY_SVC_ADDR": p.Addr, "IDENTITY_SVC_ADDR": p.Addr,
		"DESTINATION_CONTEXT": name, "POLICY_WORKLOAD": name, "DESTINATION_PROFILE_SUFFIXES": "svc.cluster.local.",
		"DESTINATION_PROFILE_NETWORKS": "10.0.0.0/8", "POLICY_CLUSTER_NETWORKS": "10.0.0.0/8,127.0.0.0/8",
		"IDENTITY_DIR": dir, "IDENTITY_TRUST_ANCHORS": p.anchors, "IDENTITY_TOKEN_FILE": token, "IDENTITY_LOCAL_NAME": Identity(name),
		// A busy machine is no reason for a request to fail.
		"INBOUND_CONNECT_TIMEOUT": "30s", "OUTBOUND_CONNECT_TIMEOUT": "30s", "SHUTDOWN_GRACE_PERIOD": "2s",
	}
	maps.Copy(all, env)
	var environ []string
	for key, value := range all {
		environ = append(environ, "LINKERD2_PROXY_"+key+"="+value)
	}
	sidecar := proc.Start(t, "weft-proxy", environ)
	sidecar.Admin = ip + ":4191"
	sidecar.Ready()
	return sidecar
}
