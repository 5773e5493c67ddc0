package mesh

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weftmesh/weft/e2e/internal/proc"
	"github.com/weftmesh/weft/e2e/internal/repo"
)

// Addresses of the two pods, which exist in network namespaces of this test only.
const (
	serverIP, serverIP6 = "10.77.0.1", "fd77::1"
	clientIP, clientIP6 = "10.77.0.2", "fd77::2"
	webIP               = "10.78.0.10" // the service's cluster IP
)

// insideNamespace is set in the process that runs in the server's namespace.
const insideNamespace = "WEFT_E2E_REDIRECT"

// initBinary names the weft-init that redirects the pods, in the same process.
const initBinary = "WEFT_E2E_INIT"

// TestRedirection runs two proxies behind what weft-init sets up, as in a pod: each
// in a network namespace of its own, so that the host's tables stay as they are.
// The test runs itself once more in a new namespace, which is gone with it.
func TestRedirection(t *testing.T) {
	if os.Getenv(insideNamespace) == "" {
		again(t)
		return
	}
	client := newNeighbour(t)
	setUp(t)
	// As the injector annotates it: the policy says which ports are opaque.
	web := strings.Replace(podOf("web", "web", serverIP, 8080, true), "metadata: {", `metadata: {annotations: {config.linkerd.io/opaque-ports: "3306"}, `, 1)
	h := newHouse(t, namespaceShop, web, podOf("client", "client", clientIP, 9, true),
		serviceOf("web", webIP, 8080))
	h.startPolicy()
	h.startIdentity("web", "client")
	// The mode that relies on redirection: peers connect to the application's port.
	h.destinationAddr = proc.FreePort(t)
	proc.Service(t, "destination", nil, append(h.busFlags(), "-listen", h.destinationAddr, "-outbound-transport-mode", "transparent")...)

	for _, ip := range []string{serverIP, serverIP6} {
		app(t, net.JoinHostPort(ip, "8080"))
		greeter(t, net.JoinHostPort(ip, "3306"))
	}
	h.redirectedProxy("web", serverIP, "[::]:4143", "0.0.0.0:4140", serverIP+","+serverIP6)
	client.do(func() { h.relays(client) })
	client.do(func() { h.redirectedProxy("client", clientIP, "0.0.0.0:4143", "0.0.0.0:4140", clientIP) })

	direct := func(ctx context.Context, network, addr string) (net.Conn, error) {
		return client.dial(ctx, network, addr, 0)
	}
	meshed := func(ctx context.Context, network, addr string) (net.Conn, error) {
		return client.dial(ctx, network, addr, applicationUID)
	}
	const name = "client.shop.serviceaccount.identity.linkerd.cluster.local"
	for _, tt := range []struct {
		name, target, want string
		dial               func(context.Context, string, string) (net.Conn, error)
	}{
		{"inbound, IPv4 on a dual-stack listener", "http://" + serverIP + ":8080/", serverIP + ":8080 ", direct},
		{"inbound, IPv6", "http://[" + serverIP6 + "]:8080/", "[" + serverIP6 + "]:8080 ", direct},
		{"outbound to a cluster IP, mutual TLS", "http://" + webIP + ":8080/", serverIP + ":8080 " + name, meshed},
		{"outbound to a pod IP, mutual TLS", "http://" + serverIP + ":8080/", serverIP + ":8080 " + name, meshed},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{DialContext: tt.dial, DisableKeepAlives: true}}
			proc.Eventually(t, "it is answered", func() error {
				got, err := get(t.Context(), c, tt.target)
				if err == nil && got != tt.want {
					err = fmt.Errorf("got %q, want %q", got, tt.want)
				}
				return err
			})
		})
	}

	t.Run("the server speaks first on an opaque port", func(t *testing.T) {
		for _, c := range []struct {
			ip   string
			dial func(context.Context, string, string) (net.Conn, error)
		}{{serverIP, direct}, {serverIP6, direct}, {serverIP, meshed}} {
			began := time.Now()
			conn, err := c.dial(t.Context(), "tcp", net.JoinHostPort(c.ip, "3306"))
			if err != nil {
				t.Fatal(err)
			}
			_ = conn.SetDeadline(time.Now().Add(30 * time.Second))
			line, err := bufio.NewReader(conn).ReadString('\n')
			_ = conn.Close()
			if line != "220 hi\n" || time.Since(began) > 8*time.Second /* detection gives up after 10 */ {
				t.Errorf("%s: %q, %v after %s", c.ip, line, err, time.Since(began))
			}
		}
	})

	t.Run("the policy holds for what was redirected", func(t *testing.T) {
		h.write("policy.yaml",
			`{apiVersion: policy.linkerd.io/v1beta3, kind: Server, metadata: {name: web, namespace: shop},
  spec: {podSelector: {matchLabels: {app: web}}, port: 8080, proxyProtocol: HTTP/1}}`,
			`{apiVersion: policy.linkerd.io/v1alpha1, kind: MeshTLSAuthentication, metadata: {name: client, namespace: shop},
  spec: {identities: ["`+name+`"]}}`,
			`{apiVersion: policy.linkerd.io/v1alpha1, kind: AuthorizationPolicy, metadata: {name: web, namespace: shop},
  spec: {targetRef: {group: policy.linkerd.io, kind: Server, name: web},
    requiredAuthenticationRefs: [{group: policy.linkerd.io, kind: MeshTLSAuthentication, name: client}]}}`)
		for _, target := range []string{"http://" + serverIP + ":8080/", "http://[" + serverIP6 + "]:8080/"} {
			c := &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{DialContext: direct, DisableKeepAlives: true}}
			proc.Eventually(t, "plaintext is refused", func() error {
				_, err := get(t.Context(), c, target)
				if err == nil || !strings.Contains(err.Error(), "403") {
					return fmt.Errorf("got %q, want 403", fmt.Sprint(err))
				}
				return nil
			})
		}
		c := &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{DialContext: meshed, DisableKeepAlives: true}}
		if got, err := get(t.Context(), c, "http://"+webIP+":8080/"); err != nil || got != serverIP+":8080 "+name {
			t.Errorf("the friend got %q, %v", got, err)
		}
	})

	t.Run("a proxy does not talk to itself", func(t *testing.T) {
		for _, c := range []struct {
			addr string
			dial func(context.Context, string, string) (net.Conn, error)
		}{
			{serverIP + ":4143", direct}, {serverIP + ":4140", direct}, {clientIP + ":4140", meshed}, {clientIP + ":4143", meshed}, {"127.0.0.1:4140", meshed},
		} {
			conn, err := c.dial(t.Context(), "tcp", c.addr)
			if err != nil {
				t.Fatalf("%s: %v", c.addr, err)
			}
			_ = conn.SetDeadline(time.Now().Add(30 * time.Second))
			_, _ = fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: %s\r\n\r\n", c.addr)
			res, err := http.ReadResponse(bufio.NewReader(conn), nil)
			_ = conn.Close()
			if err == nil && res.StatusCode < 400 || errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("%s: answered %v, %v", c.addr, res, err)
			}
		}
	})
}

// again runs this test in a network namespace of its own.
func again(t *testing.T) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("redirection needs network namespaces: run this test as root (sudo -E go test ./mesh -run TestRedirection)")
	}
	if _, err := exec.LookPath("ip"); err != nil {
		t.Skip("redirection needs network namespaces, which `ip` connects: install iproute2")
	}
	for name := range map[string]bool{"weft": true, "watcher": true, "destination": true, "policy": true, "identity": true, "weft-proxy": true} {
		proc.Binary(t, name) // built out here, where there may be a network
	}
	path := filepath.Join(t.TempDir(), "weft-init")
	root, err := repo.Root()
	if err != nil {
		t.Fatal(err)
	}
	build := exec.CommandContext(t.Context(), "go", "build", "-o", path, ".")
	build.Dir, build.Env = filepath.Join(root, "proxy/cmd/weft-init"), append(os.Environ(), "CGO_ENABLED=0") // as it is shipped
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building weft-init: %v\n%s", err, out)
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestRedirection$", "-test.v", "-test.timeout=5m")
	cmd.Env = append(os.Environ(), insideNamespace+"=1", initBinary+"="+path)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	out, err := cmd.CombinedOutput()
	if errors.Is(err, syscall.EPERM) {
		t.Skip("this machine allows root no network namespaces: run where CAP_SYS_ADMIN is given")
	}
	if err != nil {
		t.Fatalf("in the namespace: %v\n%s", err, out)
	}
	t.Logf("%s", out)
}

// redirectedProxy starts a proxy that listens on all addresses, as in a pod.
func (h *house) redirectedProxy(account, ip, inbound, outbound, ips string) {
	h.t.Helper()
	anchors, err := os.ReadFile(filepath.Join(h.state, "ca-bundle.crt"))
	if err != nil {
		h.t.Fatal(err)
	}
	var env []string
	for key, value := range map[string]string{
		"INBOUND_LISTEN_ADDR": inbound, "OUTBOUND_LISTEN_ADDR": outbound, "ADMIN_LISTEN_ADDR": ip + ":4191", "INBOUND_IPS": ips,
		"DESTINATION_SVC_ADDR": h.destinationAddr, "DESTINATION_CONTEXT": fmt.Sprintf(`{"ns":"shop","pod":%q}`, account),
		"DESTINATION_PROFILE_NETWORKS": "10.0.0.0/8,fd00::/8", "POLICY_CLUSTER_NETWORKS": "10.0.0.0/8,fd00::/8",
		"POLICY_SVC_ADDR": h.policyAddr, "POLICY_WORKLOAD": fmt.Sprintf(`{"ns":"shop","pod":%q}`, account), "INBOUND_PORTS": "8080",
		"INBOUND_DEFAULT_POLICY": "all-unauthenticated",
		"IDENTITY_SVC_ADDR":      h.identityAddr, "IDENTITY_DIR": h.t.TempDir(), "IDENTITY_TRUST_ANCHORS": string(anchors),
		"IDENTITY_TOKEN_FILE": filepath.Join(h.state, "tokens", "shop", account),
		"IDENTITY_LOCAL_NAME": account + ".shop.serviceaccount.identity.linkerd.cluster.local", "SHUTDOWN_GRACE_PERIOD": "2s",
	} {
		env = append(env, "LINKERD2_PROXY_"+key+"="+value)
	}
	p := proc.Start(h.t, "weft-proxy", env)
	proc.Eventually(h.t, "the proxy of "+account+" has its certificate", func() error {
		if !strings.Contains(p.Log(), "certificate renewed") {
			return errors.New("not yet")
		}
		return nil
	})
}

// greeter speaks first, as a database does.
func greeter(t *testing.T, addr string) {
	t.Helper()
	lis, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = lis.Close() })
	go func() {
		for {
			c, err := lis.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(c, "220 hi\n")
			_ = c.Close()
		}
	}()
}
