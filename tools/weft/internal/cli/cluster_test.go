package cli

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"

	"github.com/weftmesh/weft/bus"
	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
	"github.com/weftmesh/weft/services/kit/run"
	"github.com/weftmesh/weft/tools/weft/internal/kube/kubetest"
)

const mesh = `apiVersion: v1
kind: ConfigMap
metadata: {name: linkerd-config, namespace: linkerd}
data:
  values: |
    linkerdVersion: v1.2.3
    bus: {cluster: east}
    proxy: {logLevel: debug}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: linkerd-identity-trust-roots, namespace: linkerd}
data: {ca-bundle.crt: "anchors"}
---
apiVersion: v1
kind: Pod
metadata: {name: web, namespace: shop, labels: {linkerd.io/control-plane-ns: linkerd}}
spec:
  containers: [{name: web, image: web}, {name: linkerd-proxy, image: "reg:5000/proxy:v1.2.3"}]
---
apiVersion: v1
kind: Pod
metadata: {name: db, namespace: shop, labels: {linkerd.io/control-plane-ns: linkerd}}
spec:
  initContainers: [{name: linkerd-proxy, image: "reg:5000/proxy:v1.2.2"}]
  containers: [{name: db, image: db}]
---
apiVersion: v1
kind: Pod
metadata: {name: done, namespace: shop, labels: {linkerd.io/control-plane-ns: linkerd}}
spec:
  containers: [{name: linkerd-proxy, image: "proxy:v1"}]
status: {phase: Succeeded}`

func TestVersionOfCluster(t *testing.T) {
	api := kubetest.Start(t, mesh)
	tests := []struct {
		name string
		args []string
		want string
	}{
		{"client", []string{"--client"}, "Client version: dev\n"},
		{"both", nil, "Client version: dev\nServer version: v1.2.3\n"},
		{"short", []string{"--short"}, "dev\nv1.2.3\n"},
		{"proxies", []string{"--proxy"}, "Client version: dev\nServer version: v1.2.3\nProxy versions:\n\tv1.2.2 (1 pods)\n\tv1.2.3 (1 pods)\n"},
		{"no proxies there", []string{"--proxy", "-n", "empty"}, "Client version: dev\nServer version: v1.2.3\nProxy versions:\n"},
		{"no mesh there", []string{"-L", "other"}, "Client version: dev\nServer version: unavailable\n"},
		{"no cluster", []string{"--context", "none"}, "Client version: dev\nServer version: unavailable\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			code, out, errOut := weft(t, append([]string{"version", "--kubeconfig", api.Kubeconfig}, tt.args...)...)
			if code != 0 || errOut != "" {
				t.Errorf("exit code %d, stderr %s", code, errOut)
			}
			if diff := cmp.Diff(tt.want, out); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestImageVersion(t *testing.T) {
	for image, want := range map[string]string{
		"proxy": "latest", "proxy:v1": "v1", "reg:5000/proxy": "latest", "reg:5000/a/proxy:v1": "v1", "proxy:v1@sha256:aa": "v1", "proxy@sha256:aa": "sha256:aa",
	} {
		if got := imageVersion(image); got != want {
			t.Errorf("imageVersion(%q) = %q, want %q", image, got, want)
		}
	}
}

// TestInjectAsksTheCluster: what the mesh has already is not written again.
func TestInjectAsksTheCluster(t *testing.T) {
	api := kubetest.Start(t, mesh)
	file := filepath.Join(t.TempDir(), "pod.yaml")
	if err := os.WriteFile(file, []byte("apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {containers: [{name: c, image: c}]}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	code, out, errOut := weft(t, "inject", "--kubeconfig", api.Kubeconfig, "--proxy-log-level", "debug", "--proxy-uid", "7", file)
	if code != 0 || strings.Contains(out, "log-level") || !strings.Contains(out, `config.linkerd.io/proxy-uid: "7"`) {
		t.Errorf("exit code %d\n%s%s", code, out, errOut)
	}
	code, out, _ = weft(t, "inject", "--kubeconfig", api.Kubeconfig, "--manual", file)
	if code != 0 || !strings.Contains(out, "name: linkerd-proxy") {
		t.Errorf("exit code %d\n%s", code, out)
	}
	code, _, errOut = weft(t, "inject", "--kubeconfig", api.Kubeconfig, "-L", "other", file)
	want := "weft: there is no mesh in namespace other\n  why:   its ConfigMap linkerd-config does not exist\n" +
		"  next:  name another namespace with --linkerd-namespace, or use the defaults with --ignore-cluster\n"
	if code != run.ExitFailed || errOut != want {
		t.Errorf("exit code %d, stderr %s", code, errOut)
	}
	code, _, errOut = weft(t, "inject", "--kubeconfig", "/nowhere", file)
	if code != run.ExitFailed || !strings.Contains(errOut, "\n         or use the mesh's defaults with --ignore-cluster\n") {
		t.Errorf("exit code %d, stderr %s", code, errOut)
	}
	if code, _, errOut := weft(t, "inject"); code != run.ExitConfig || !strings.Contains(errOut, "wants one file") {
		t.Errorf("exit code %d, stderr %s", code, errOut)
	}
}

func TestPlugin(t *testing.T) {
	dir := t.TempDir()
	script := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	script("weft-hello", "echo weft \"$@\"; echo oh >&2; exit 3")
	script("linkerd-hello", "echo second")
	script("linkerd-viz", "echo linkerd \"$@\"")
	script("weft-status", "echo never")
	t.Setenv("PATH", dir+":/bin:/usr/bin")
	if code, out, errOut := weft(t, "hello", "-as", "--x=1"); code != 3 || out != "weft -as --x=1\n" || errOut != "oh\n" {
		t.Errorf("hello: exit code %d, %q, %q", code, out, errOut)
	}
	if code, out, _ := weft(t, "viz"); code != 0 || out != "linkerd\n" {
		t.Errorf("viz: exit code %d, %q", code, out)
	}
	for _, args := range [][]string{{"status", "--help"}, {"help"}, {"../hello"}, {"-hello"}, {"completion", "bash"}} {
		if _, out, _ := weft(t, args...); strings.Contains(out, "never") || strings.HasPrefix(out, "weft ") {
			t.Errorf("%v ran an executable: %s", args, out)
		}
	}
}

func TestCompletion(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish"} {
		if code, out, errOut := weft(t, "completion", shell); code != 0 || !strings.Contains(out, "weft") || errOut != "" {
			t.Errorf("completion %s: exit code %d, %s", shell, code, errOut)
		}
	}
}

func TestCompletionAsksTheCluster(t *testing.T) {
	api := kubetest.Start(t, mesh+"\n---\napiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n---\napiVersion: v1\nkind: Namespace\nmetadata: {name: ship}")
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"version", "-n", "sh"}, "ship\nshop\n:4\n"},
		{[]string{"status", "-L", "sho"}, "shop\n:4\n"},
		{[]string{"status", "--context", ""}, "test\n:4\n"},
		{[]string{"--kubeconfig", "/nowhere", "status", "--context", ""}, ":4\n"},
		{[]string{"--kubeconfig", "/nowhere", "status", "-L", ""}, ":4\n"},
	} {
		args := append([]string{"__complete", "--kubeconfig", api.Kubeconfig}, tt.args...)
		if code, out, _ := weft(t, args...); code != 0 || out != tt.want {
			t.Errorf("%v completes to %q (exit code %d), want %q", tt.args, out, code, tt.want)
		}
	}
}

// TestStatusThroughCluster: the whole way, from the kubeconfig through a
// port-forward to a bus that knows its clients by their certificates.
func TestStatusThroughCluster(t *testing.T) {
	t.Setenv("WEFT_BUS_SERVERS", "")
	bed := newBed(t, "weft-nats.linkerd.svc")
	nats, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: -1, NoSigs: true, TLSVerify: true, TLSTimeout: 5,
		TLSConfig: &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{bed.server}, ClientCAs: bed.roots, ClientAuth: tls.RequireAndVerifyClientCert},
	})
	if err != nil {
		t.Fatal(err)
	}
	nats.Start()
	defer nats.Shutdown()
	if !nats.ReadyForConnections(10 * time.Second) {
		t.Fatal("the bus is not ready")
	}
	ctx, cancel := context.WithCancel(t.Context())
	self, err := bus.Connect(ctx, bus.Config{
		Servers: []string{"tls://" + nats.Addr().String()}, Cluster: "east", CA: bed.file("ca.crt"), Cert: bed.file("tls.crt"), Key: bed.file("tls.key"),
	}, "test", prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	defer self.Close()
	served := make(chan error, 1)
	go func() {
		served <- bus.ServeRoll(ctx, self, func() *busv1.Roll {
			return &busv1.Roll{Entries: []*busv1.RollEntry{{
				LastHeardNs: time.Now().UnixNano(), Presence: &busv1.Presence{Service: "policy", Instance: "p1", Version: "v1", Ready: true, StartedAtNs: time.Now().UnixNano()},
			}}}
		})
	}()
	defer func() { cancel(); <-served }()

	api := kubetest.Start(t, mesh+"\n---\n"+bed.secret()+`
---
apiVersion: v1
kind: Pod
metadata: {name: weft-nats-0, namespace: linkerd, labels: {linkerd.io/control-plane-component: nats}}
status: {conditions: [{type: Ready, status: "True"}]}`)
	api.Handle("/api/v1/namespaces/linkerd/pods/weft-nats-0/portforward", forwardTo(t, nats.Addr().String()))
	var code int
	var out, errOut string
	for range 100 { // the answering subscription may be a moment behind
		if code, out, errOut = weft(t, "status", "--kubeconfig", api.Kubeconfig, "-hear", "1ms"); code == 0 {
			break
		}
	}
	if code != 0 || !strings.Contains(out, "policy") {
		t.Errorf("exit code %d\n%s%s", code, out, errOut)
	}

	code, _, errOut = weft(t, "status", "--kubeconfig", api.Kubeconfig, "-L", "other")
	if code != run.ExitFailed || !strings.HasPrefix(errOut, "weft: no mesh is to be found in namespace other\n") {
		t.Errorf("exit code %d, %s", code, errOut)
	}
}

// forwardTo plays the kubelet: a forwarded connection leads to addr.
func forwardTo(t *testing.T, addr string) http.HandlerFunc {
	t.Helper()
	return func(w http.ResponseWriter, r *http.Request) {
		if !strings.EqualFold(r.Header.Get("Upgrade"), "SPDY/3.1") {
			http.Error(w, "no websockets here", http.StatusBadRequest)
			return
		}
		var complaints httpstream.Stream
		w.Header().Set(httpstream.HeaderProtocolVersion, "portforward.k8s.io")
		link := spdy.NewResponseUpgrader().UpgradeResponse(w, r, func(s httpstream.Stream, replied <-chan struct{}) error {
			if s.Headers().Get(corev1.StreamType) == corev1.StreamTypeError {
				complaints = s
				return nil
			}
			if port := s.Headers().Get(corev1.PortHeader); port != strconv.Itoa(busPort) {
				return errors.New("forward to port " + port)
			}
			errs := complaints
			go func() {
				<-replied
				conn, err := net.Dial("tcp", addr)
				if err != nil {
					return
				}
				go func() { _, _ = io.Copy(conn, s); conn.Close() }()
				_, _ = io.Copy(s, conn)
				_ = errs.Close()
				_ = s.Close()
			}()
			return nil
		})
		if link != nil {
			<-link.CloseChan()
		}
	}
}

// bed holds certificates of a bus.
type bed struct {
	t      *testing.T
	dir    string
	server tls.Certificate
	roots  *x509.CertPool
}

func (b *bed) file(name string) string { return filepath.Join(b.dir, name) }

func (b *bed) read(name string) []byte {
	text, err := os.ReadFile(b.file(name))
	if err != nil {
		b.t.Fatal(err)
	}
	return text
}

func (b *bed) secret() string {
	enc := func(name string) string { return base64.StdEncoding.EncodeToString(b.read(name)) }
	return fmt.Sprintf("apiVersion: v1\nkind: Secret\nmetadata: {name: weft-bus-cli, namespace: linkerd}\ndata: {tls.crt: %q, tls.key: %q, ca.crt: %q}",
		enc("tls.crt"), enc("tls.key"), enc("ca.crt"))
}
