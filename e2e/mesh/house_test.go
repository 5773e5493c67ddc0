package mesh

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weftmesh/weft/e2e/internal/proc"
)

// house is a control plane of real processes over one directory of manifests.
type house struct {
	t       *testing.T
	dir     string // manifests
	state   string // certificates and tokens
	cluster string
	busAddr string
	bus     *proc.Process

	watcher                     *proc.Process
	destinationAddr, policyAddr string
	destination, policy         *proc.Process
	identityAddr                string
	identity                    *proc.Process
}

// newHouse starts a bus, a watcher and a destination; the rest on demand.
func newHouse(t *testing.T, manifests ...string) *house {
	t.Helper()
	h := &house{t: t, dir: t.TempDir(), state: t.TempDir(), cluster: "local", busAddr: proc.FreePort(t)}
	h.write("base.yaml", manifests...)
	h.startBus()
	h.startWatcher()
	h.destinationAddr = proc.FreePort(t)
	h.startDestination()
	return h
}

func (h *house) busFlags() []string {
	return []string{"-bus.servers", "nats://" + h.busAddr, "-bus.cluster", h.cluster}
}

func (h *house) startBus() {
	h.t.Helper()
	h.bus = proc.Start(h.t, "weft", nil, "bus", "--listen", h.busAddr)
	proc.Eventually(h.t, "the bus listens", func() error { return dial(h.busAddr) })
}

func (h *house) startWatcher() {
	h.t.Helper()
	h.watcher = proc.Service(h.t, "watcher", nil, append(h.busFlags(), "-source", "dir", "-dir", h.dir)...)
}

func (h *house) startDestination() {
	h.t.Helper()
	h.destination = proc.Service(h.t, "destination", nil,
		append(h.busFlags(), "-listen", h.destinationAddr, "-outbound-transport-mode", "transport-header")...)
}

func (h *house) startPolicy() {
	h.t.Helper()
	h.policyAddr = proc.FreePort(h.t)
	h.policy = proc.Service(h.t, "policy", nil, append(h.busFlags(), "-listen", h.policyAddr)...)
}

// startIdentity makes certificates and a token for each service account of
// namespace shop, and starts the identity service over them.
func (h *house) startIdentity(accounts ...string) {
	h.t.Helper()
	args := []string{"dev-certs", "--dir", h.state}
	for _, a := range accounts {
		args = append(args, "--token", "shop/"+a)
	}
	h.weft(args...)
	h.identityAddr = proc.FreePort(h.t)
	h.identity = proc.Service(h.t, "identity", nil, append(h.busFlags(), "-listen", h.identityAddr,
		"-controller-namespace", "linkerd", "-identity-trust-domain", "cluster.local", "-identity-scheme", "kubernetes.io/tls",
		"-issuer", filepath.Join(h.state, "issuer"), "-trust-anchors", filepath.Join(h.state, "ca-bundle.crt"),
		"-tokens", "jwks:"+filepath.Join(h.state, "token-keys.json"))...)
}

// weft runs the user's command and returns what it printed.
func (h *house) weft(args ...string) string {
	h.t.Helper()
	out, err := h.tryWeft(args...)
	if err != nil {
		h.t.Fatalf("weft %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

func (h *house) tryWeft(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(h.t.Context(), proc.Patience)
	defer cancel()
	var out, notes strings.Builder
	cmd := exec.CommandContext(ctx, proc.Binary(h.t, "weft"), args...)
	cmd.Stdout, cmd.Stderr = &out, &notes
	err := cmd.Run()
	if err != nil {
		err = fmt.Errorf("%w: %s", err, notes.String())
	}
	return out.String(), err
}

// write puts documents into one manifest file, whole or not at all.
func (h *house) write(name string, documents ...string) {
	h.t.Helper()
	tmp := filepath.Join(h.dir, "."+name+".tmp")
	if err := os.WriteFile(tmp, []byte(strings.Join(documents, "\n---\n")), 0o600); err != nil {
		h.t.Fatal(err)
	}
	if err := os.Rename(tmp, filepath.Join(h.dir, name)); err != nil {
		h.t.Fatal(err)
	}
}

func (h *house) remove(name string) {
	h.t.Helper()
	if err := os.Remove(filepath.Join(h.dir, name)); err != nil {
		h.t.Fatal(err)
	}
}

// proxyFor starts a workload's proxy on its own loopback address. more are
// settings NAME=VALUE that replace the usual ones.
func (h *house) proxyFor(pod, account, ip string, more ...string) *proc.Process {
	h.t.Helper()
	identity := h.t.TempDir()
	anchors, err := os.ReadFile(filepath.Join(h.state, "ca-bundle.crt"))
	if err != nil {
		h.t.Fatal(err)
	}
	name := func(sa, ns string) string { return sa + "." + ns + ".serviceaccount.identity.linkerd.cluster.local" }
	var env []string
	for key, value := range map[string]string{
		"INBOUND_LISTEN_ADDR": ip + ":4143", "OUTBOUND_LISTEN_ADDR": ip + ":4140", "ADMIN_LISTEN_ADDR": ip + ":4191",
		"CONTROL_LISTEN_ADDR": ip + ":4190", "INBOUND_IPS": ip, "INBOUND_PORTS": "8080",
		"DESTINATION_SVC_ADDR": h.destinationAddr, "DESTINATION_CONTEXT": fmt.Sprintf(`{"ns":"shop","pod":%q}`, pod),
		"DESTINATION_PROFILE_NETWORKS": "10.0.0.0/8,127.0.0.0/8", "DESTINATION_PROFILE_SUFFIXES": "svc.cluster.local.",
		"POLICY_SVC_ADDR": h.policyAddr, "POLICY_WORKLOAD": fmt.Sprintf(`{"ns":"shop","pod":%q}`, pod),
		"POLICY_CLUSTER_NETWORKS": "10.0.0.0/8,127.0.0.0/8", "INBOUND_DEFAULT_POLICY": "all-unauthenticated",
		"IDENTITY_SVC_ADDR": h.identityAddr, "IDENTITY_DIR": identity, "IDENTITY_TRUST_ANCHORS": string(anchors),
		"IDENTITY_TOKEN_FILE": filepath.Join(h.state, "tokens", "shop", account), "IDENTITY_LOCAL_NAME": name(account, "shop"),
		"SHUTDOWN_GRACE_PERIOD": "2s",
	} {
		env = append(env, "LINKERD2_PROXY_"+key+"="+value)
	}
	for _, m := range more {
		name, _, _ := strings.Cut(m, "=")
		env = slices.DeleteFunc(env, func(e string) bool { return strings.HasPrefix(e, "LINKERD2_PROXY_"+name+"=") })
		env = append(env, "LINKERD2_PROXY_"+m)
	}
	p := proc.Start(h.t, "weft-proxy", env)
	p.Admin = ip + ":4191"
	p.Ready()
	return p
}

// through is a client whose requests go through the proxy of the address.
func through(ip string) *http.Client {
	proxy := &url.URL{Scheme: "http", Host: ip + ":4140"}
	return &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{Proxy: http.ProxyURL(proxy), MaxIdleConnsPerHost: 8}}
}

// get returns the body of a page, or an error for any status but 200.
func get(ctx context.Context, client *http.Client, target string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, target, nil)
	if err != nil {
		return "", err
	}
	resp, err := client.Do(req)
	if err != nil {
		return "", err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return "", err
	}
	if resp.StatusCode != http.StatusOK {
		return "", fmt.Errorf("%s %s: %s", resp.Status, resp.Header.Get("l5d-proxy-error"), body)
	}
	return string(body), nil
}

// app serves its own address as text, the way a test tells backends apart.
func app(t *testing.T, addr string) {
	t.Helper()
	lis, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = fmt.Fprintf(w, "%s %s", addr, r.Header.Get("l5d-client-id"))
	})}
	go func() { _ = srv.Serve(lis) }()
	t.Cleanup(func() { _ = srv.Close() })
}

func dial(addr string) error {
	conn, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return err
	}
	return conn.Close()
}

// traffic sends requests one after the other until the test calls its stop,
// which returns how many went well and the first error.
func traffic(t *testing.T, client *http.Client, target string) (stop func() (good int64, failed error)) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var good atomic.Int64
	done := make(chan error, 1)
	go func() {
		for {
			if _, err := get(ctx, client, target); err != nil {
				if ctx.Err() != nil {
					err = nil
				}
				done <- err
				return
			}
			good.Add(1)
			select {
			case <-time.After(2 * time.Millisecond):
			case <-ctx.Done():
				done <- nil
				return
			}
		}
	}()
	return func() (int64, error) {
		cancel()
		return good.Load(), <-done
	}
}
