package kube

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/linkerd/linkerd2-proxy-api/go/identity"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/weftmesh/weft/e2e/internal/proc"
	"github.com/weftmesh/weft/e2e/internal/repo"
	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
)

// chart renders one of ours, as helm does, and gives its documents.
func chart(t *testing.T, name string, args ...string) []string {
	t.Helper()
	root, err := repo.Root()
	if err != nil {
		t.Fatal(err)
	}
	bin := os.Getenv("WEFT_KUBE_BIN")
	if bin == "" {
		bin = filepath.Join(root, ".bin", "kube")
	}
	helm := filepath.Join(bin, "helm")
	if _, err := os.Stat(helm); err != nil {
		t.Skipf("the chart can't be rendered without helm in %s; make clusterbins builds it", bin)
	}
	args = append([]string{"template", name, filepath.Join(root, "charts", name), "--kube-version", "v1.37.2"}, args...)
	out, err := exec.CommandContext(t.Context(), helm, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("rendering the chart: %v: %s", err, out)
	}
	return strings.Split(string(out), "\n---\n")
}

// TestChartRights: what the chart lets the watcher do is all that it needs.
func TestChartRights(t *testing.T) {
	s := open(t)
	s.install(t, looseCRDs()...)
	m := s.mesh(t, object{"apiGroups": []string{""}, "resources": []string{"bindings"}, "verbs": []string{"create"}})
	places := map[string]string{
		"ClusterRole": roles, "ClusterRoleBinding": bindings,
		"Role":        "/apis/rbac.authorization.k8s.io/v1/namespaces/" + m.name + "/roles",
		"RoleBinding": "/apis/rbac.authorization.k8s.io/v1/namespaces/" + m.name + "/rolebindings",
	}
	kind := regexp.MustCompile(`(?m)^kind: (\S+)$`)
	n := 0
	for _, doc := range chart(t, "weft-control-plane", "--namespace", m.name, "--show-only", "templates/watcher.yaml") {
		k := kind.FindStringSubmatch(doc)
		if k == nil || places[k[1]] == "" {
			continue
		}
		if _, err := s.do(http.MethodPost, places[k[1]], "application/yaml", []byte(doc)); err != nil {
			t.Fatal(err)
		}
		n++
	}
	if n < 4 {
		t.Fatalf("%d rules and bindings in the chart, want at least 4", n)
	}
	ns := s.namespace(t, "rights", object{"linkerd.io/inject": "enabled"})
	s.create(t, in(servers, ns), serverSpec("a", 80))
	s.create(t, in(pods, ns), named("alone", object{"spec": object{"containers": []any{object{"name": "app", "image": "app:1"}}}}))
	w := m.watcher()
	m.ports("a row", ns, map[string]uint32{"a": 80})
	m.until("an event", func() error {
		if got := metric(t, w, `weft_watcher_events_total{reason="InjectionSkipped",result="ok"}`); got < 1 {
			return fmt.Errorf("%v were written", got)
		}
		return nil
	})
	m.until("the pod without a proxy is counted", func() error {
		m.mu.Lock()
		defer m.mu.Unlock()
		for _, p := range m.heard {
			if p.GetLeader() && p.GetUnmeshed() > 0 {
				return nil
			}
		}
		return fmt.Errorf("presences %v", m.heard)
	})
	if err := m.skipped("every ", ""); err == nil {
		t.Error("there is a kind that it may not read")
	}
	if strings.Contains(strings.ToLower(w.Log()), "forbidden") {
		t.Errorf("something was forbidden:\n%s", w.Log())
	}
}

// chartCRDs puts the chart's definitions in the place of the loose ones, for one
// test.
func (s *server) chartCRDs(t *testing.T, args ...string) {
	t.Helper()
	docs := chart(t, "weft-crds", args...)
	none := func() {
		for _, d := range looseCRDs() {
			s.remove(t, crds+"/"+d["metadata"].(map[string]any)["name"].(string))
		}
	}
	none()
	t.Cleanup(none) // other tests bring their own
	n := 0
	for _, doc := range docs {
		if !strings.Contains(doc, "\nkind: CustomResourceDefinition\n") {
			continue
		}
		if _, err := s.do(http.MethodPost, crds, "application/yaml", []byte(doc)); err != nil && !is(err, http.StatusConflict) {
			t.Fatal(err)
		}
		n++
	}
	if n < 10 {
		t.Fatalf("%d definitions in the chart", n)
	}
}

// TestChartCRDs: the server takes the chart's definitions, and the watcher reads
// what they let through.
func TestChartCRDs(t *testing.T) {
	s := open(t)
	s.chartCRDs(t, "--set", "installGatewayAPI=true")
	ns := s.namespace(t, "chart", nil)
	ask := func(path string, o object) func() error {
		return func() error {
			body, err := json.Marshal(o)
			if err != nil {
				return err
			}
			_, err = s.do(http.MethodPost, path, "application/json", body)
			if is(err, http.StatusConflict) {
				err = nil
			}
			return err
		}
	}
	proc.Eventually(t, "Servers are served", ask(in(servers, ns), serverSpec("a", 80)))
	proc.Eventually(t, "NetworkAuthentications are served", ask(in(networks, ns), named("n", object{
		"apiVersion": "policy.linkerd.io/v1alpha1", "kind": "NetworkAuthentication", "spec": object{"networks": []any{object{"cidr": "10.0.0.0/8"}}},
	})))
	if err := ask(in(servers, ns), serverSpec("b", []any{"x"}))(); !is(err, http.StatusUnprocessableEntity) {
		t.Errorf("a Server whose port is a list: %v, want it to be refused", err)
	}
	m := s.mesh(t)
	m.watcher()
	m.ports("a Server of the chart's definition", ns, map[string]uint32{"a": 80})
	if got := m.keys(busv1.Table_TABLE_NETWORK_AUTHENTICATIONS, ns); len(got) != 1 {
		t.Errorf("network authentications %v", got)
	}
}

// TestMirrorWrites: copies of another cluster's exported service come, change
// and go at a real API server.
func TestMirrorWrites(t *testing.T) {
	s := open(t)
	ns := s.namespace(t, "mirrored", nil)
	nats, dir := proc.NATS(t), t.TempDir()
	put := func(port int) {
		t.Helper()
		text := fmt.Sprintf(`{apiVersion: v1, kind: Service, metadata: {name: web, namespace: %[1]s, labels: {mirror.linkerd.io/exported: "true"}}, spec: {ports: [{port: %[2]d, name: http}]}}
---
{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: web-1, namespace: %[1]s, labels: {kubernetes.io/service-name: web}},
 addressType: IPv4, ports: [{port: 8080, name: http}], endpoints: [{addresses: ["10.9.0.1"], conditions: {ready: true}}]}`, ns, port)
		tmp := filepath.Join(dir, ".tmp")
		if err := os.WriteFile(tmp, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(tmp, filepath.Join(dir, "web.yaml")); err != nil {
			t.Fatal(err)
		}
	}
	put(80)
	proc.Service(t, "watcher", nil, "-source", "dir", "-dir", dir, "-bus.servers", nats, "-bus.cluster", "east")
	proc.Service(t, "mirror", nil, "-cluster-name", "east", "-remote.servers", nats, "-sink", "kube", "-kubeconfig", s.control.Kubeconfig(),
		"-gateway.address", "192.0.2.1", "-gateway.identity", "gateway.example")
	copied := func(port int) {
		t.Helper()
		proc.Eventually(t, "the copy", func() error {
			answer, err := s.do(http.MethodGet, in(services, ns)+"/web-east", "", nil)
			if err != nil {
				return err
			}
			var service struct {
				Spec struct{ Ports []struct{ Port int } }
			}
			decode(t, answer, &service)
			if len(service.Spec.Ports) != 1 || service.Spec.Ports[0].Port != port {
				return fmt.Errorf("%+v", service)
			}
			answer, err = s.do(http.MethodGet, in(endpointSlices, ns), "", nil)
			if err != nil {
				return err
			}
			if !bytes.Contains(answer, []byte(`"192.0.2.1"`)) || !bytes.Contains(answer, []byte(`"mirror.linkerd.io/remote-gateway-identity":"gateway.example"`)) {
				return fmt.Errorf("slices %s", answer)
			}
			return nil
		})
	}
	copied(80)
	put(81)
	copied(81)
	if err := os.Remove(filepath.Join(dir, "web.yaml")); err != nil {
		t.Fatal(err)
	}
	proc.Eventually(t, "the copy is gone", func() error {
		_, err := s.do(http.MethodGet, in(services, ns)+"/web-east", "", nil)
		if is(err, http.StatusNotFound) {
			return nil
		}
		return fmt.Errorf("it is there: %w", err)
	})
}

// TestIdentityAsksTheServer: a token of the real API server buys a certificate
// of its own account, and only of that.
func TestIdentityAsksTheServer(t *testing.T) {
	s := open(t)
	ns := s.namespace(t, "identified", nil)
	s.create(t, in(accounts, ns), named("web", nil))
	token := func(audience string) []byte {
		t.Helper()
		answer := s.create(t, in(accounts, ns)+"/web/token", object{"spec": object{"audiences": []string{audience}, "expirationSeconds": 600}})
		text, _ := answer["status"].(map[string]any)["token"].(string)
		return []byte(text)
	}
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), proc.Binary(t, "weft"), "dev-certs", "--dir", dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	listen := proc.FreePort(t)
	proc.Service(t, "identity", nil, "-listen", listen, "-controller-namespace", "linkerd", "-identity-trust-domain", "cluster.local",
		"-identity-scheme", "kubernetes.io/tls", "-issuer", filepath.Join(dir, "issuer"), "-trust-anchors", filepath.Join(dir, "ca-bundle.crt"),
		"-tokens", "kube", "-kubeconfig", s.control.Kubeconfig())
	conn, err := grpc.NewClient(listen, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	certify := func(account string, token []byte) (*identity.CertifyResponse, error) {
		name := account + "." + ns + ".serviceaccount.identity.linkerd.cluster.local"
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			return nil, err
		}
		csr, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: name}, DNSNames: []string{name}}, key)
		if err != nil {
			return nil, err
		}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		return identity.NewIdentityClient(conn).Certify(ctx, &identity.CertifyRequest{Identity: name, Token: token, CertificateSigningRequest: csr})
	}
	good := token("identity.l5d.io")
	proc.Eventually(t, "a certificate", func() error {
		answer, err := certify("web", good)
		if err == nil && len(answer.GetLeafCertificate()) == 0 {
			err = fmt.Errorf("an empty answer")
		}
		return err
	})
	for what, c := range map[string]struct {
		account string
		token   []byte
	}{
		"another account":            {"db", good},
		"a token for somebody else":  {"web", token("https://elsewhere.example")},
		"no token of this server":    {"web", []byte("eyJhbGciOiJub25lIn0.e30.")},
		"nothing that is like a JWT": {"web", []byte("x")},
	} {
		if _, err := certify(c.account, c.token); err == nil || status.Code(err) == codes.DeadlineExceeded || status.Code(err) == codes.Unavailable {
			t.Errorf("%s: %v, want a refusal", what, err)
		}
	}
}
