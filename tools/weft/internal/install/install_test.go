package install

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/weftmesh/weft/charts"
	"github.com/weftmesh/weft/services/kit/say"
	"github.com/weftmesh/weft/tools/weft/internal/kube/kubetest"
	"github.com/weftmesh/weft/tools/weft/internal/manifest"
)

// run runs one of the room's commands as the tree would.
func run(t *testing.T, args ...string) (docs []manifest.Document, problem string) {
	t.Helper()
	t.Setenv(envRegistry, "")
	out, _, err := kubetest.Play(t, "", args, Command(), UpgradeCommand(), UninstallCommand(), PruneCommand(), CNICommand())
	var why bytes.Buffer
	say.Print(&why, "weft", err, say.Plain)
	docs, err = manifest.Parse("out", []byte(out))
	if err != nil {
		t.Fatal(err)
	}
	return docs, why.String()
}

func find1(t *testing.T, docs []manifest.Document, kind, name string) Tree {
	t.Helper()
	for _, d := range docs {
		if d.Object["kind"] == kind && text(d.Object, "metadata.name") == name {
			return d.Object
		}
	}
	t.Fatalf("there is no %s %s among the %d documents", kind, name, len(docs))
	return nil
}

// newCluster is an API server that answers what install asks.
func newCluster(t *testing.T, objects string) *kubetest.Server {
	t.Helper()
	s := kubetest.Start(t, objects+`
---
apiVersion: v1
kind: Service
metadata: {name: kubernetes, namespace: default}
spec: {ports: [{port: 443, targetPort: 6443}]}
---
apiVersion: v1
kind: Node
metadata: {name: n1}
status: {nodeInfo: {containerRuntimeVersion: "containerd://2.0"}}`)
	s.Handle("/version", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"gitVersion":"v1.37.2"}`) })
	return s
}

// apply keeps documents as kubectl would.
func apply(t *testing.T, s *kubetest.Server, docs []manifest.Document) {
	t.Helper()
	for _, d := range docs {
		text, err := json.Marshal(d.Object)
		if err != nil {
			t.Fatal(err)
		}
		obj := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(text, &obj.Object); err != nil {
			t.Fatal(err)
		}
		s.Put(obj)
	}
}

// installed is a cluster with a control plane, and what was printed for it.
func installed(t *testing.T, args ...string) (*kubetest.Server, []manifest.Document) {
	t.Helper()
	s := newCluster(t, "")
	crds, err := crdNames(charts.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range append(crds, gatewayKinds...) {
		s.Put(&unstructured.Unstructured{Object: Tree{
			"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
			"metadata": Tree{"name": name, "labels": Tree{"linkerd.io/control-plane-ns": "linkerd"}},
		}})
	}
	docs, problem := run(t, append([]string{"install", "--kubeconfig", s.Kubeconfig}, args...)...)
	if problem != "" {
		t.Fatal(problem)
	}
	apply(t, s, docs)
	return s, docs
}

func values(t *testing.T, docs []manifest.Document) Tree {
	t.Helper()
	var out Tree
	if err := yaml.Unmarshal([]byte(datum(find1(t, docs, "ConfigMap", configName), "values")), &out); err != nil {
		t.Fatal(err)
	}
	return out
}

func TestInstall(t *testing.T) {
	_, docs := installed(t, "--proxy-log-level=debug", "--set", "nats.replicas=1")
	if docs[0].Object["kind"] != "Namespace" {
		t.Errorf("the first document is a %s", docs[0].Object["kind"])
	}
	v := values(t, docs)
	if got := text(v, portsPath); got != "443,6443" {
		t.Errorf("the API server's ports are %q", got)
	}
	if text(v, "proxy.logLevel") != "debug" {
		t.Error("the flag has no effect")
	}
	asked := datum(find1(t, docs, "Secret", overridesName), overridesName)
	if diff := cmp.Diff("nats:\n  replicas: 1\nproxy:\n  logLevel: debug\n", asked); diff != "" {
		t.Errorf("what is remembered (-want +got):\n%s", diff)
	}
	issuer := certificates(datum(find1(t, docs, "Secret", issuerName), "crt.pem"))[0]
	if life := issuer.NotAfter.Sub(issuer.NotBefore); issuer.Subject.CommonName != "identity.linkerd.cluster.local" || life < 8759*time.Hour || life > 8761*time.Hour || !issuer.IsCA {
		t.Errorf("the issuer is %s, lives %s", issuer.Subject, life)
	}
	for _, d := range docs {
		if d.Object["kind"] != "Secret" && strings.Contains(string(d.Raw), "PRIVATE KEY") {
			t.Errorf("a private key is in %s %s", d.Object["kind"], name(d))
		}
	}
}

func TestInstallRefuses(t *testing.T) {
	s, _ := installed(t)
	_, got := run(t, "install", "--kubeconfig", s.Kubeconfig)
	want := "weft: a control plane is installed in namespace linkerd already\n" +
		"  why:   its ConfigMap linkerd-config exists\n" +
		"  next:  change it with `weft upgrade`; to print the manifests all the same, use --ignore-cluster\n"
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("installed already (-want +got):\n%s", diff)
	}
	if docs, problem := run(t, "install", "--ignore-cluster"); problem != "" || len(docs) == 0 {
		t.Error("--ignore-cluster:", problem)
	}

	bare := newCluster(t, "")
	_, got = run(t, "install", "--kubeconfig", bare.Kubeconfig)
	if !strings.HasPrefix(got, "weft: the cluster lacks kinds that the control plane works with\n  why:   no such CustomResourceDefinition: authorizationpolicies.policy.linkerd.io, ") ||
		!strings.HasSuffix(got, "next:  weft install --crds | kubectl apply -f -\n") {
		t.Errorf("no CRDs: %s", got)
	}
	crds, _ := run(t, "install", "--crds", "--kubeconfig", bare.Kubeconfig)
	apply(t, bare, crds)
	_, got = run(t, "install", "--kubeconfig", bare.Kubeconfig)
	if !strings.Contains(got, "no such CustomResourceDefinition: grpcroutes.gateway.networking.k8s.io, httproutes.gateway.networking.k8s.io\n") {
		t.Errorf("no Gateway API: %s", got)
	}
	crds, _ = run(t, "install", "--crds", "--kubeconfig", bare.Kubeconfig, "--set", "installGatewayAPI=true")
	apply(t, bare, crds)
	docker, err := manifest.Parse("docker", []byte("apiVersion: v1\nkind: Node\nmetadata: {name: n2}\nstatus: {nodeInfo: {containerRuntimeVersion: \"docker://20\"}}"))
	if err != nil {
		t.Fatal(err)
	}
	apply(t, bare, docker)
	_, got = run(t, "install", "--kubeconfig", bare.Kubeconfig)
	if !strings.Contains(got, "lets only root redirect traffic: n2\n  next:  add --set proxyInit.runAsRoot=true\n") {
		t.Errorf("docker: %s", got)
	}
	if _, got := run(t, "install", "--kubeconfig", bare.Kubeconfig, "--set", "proxyInit.runAsRoot=true"); got != "" {
		t.Errorf("docker, as root: %s", got)
	}
}

func TestBadValues(t *testing.T) {
	_, got := run(t, "install", "--ignore-cluster", "--set", "proxy.logLevl=debug")
	if !strings.HasPrefix(got, "weft: the manifests cannot be made\n") || !strings.Contains(got, "logLevl") {
		t.Error(got)
	}
	_, got = run(t, "install", "--ignore-cluster", "--set", "nats.enabled=false")
	if !strings.Contains(got, "nats.enabled is false and nats.url is empty.") {
		t.Error(got)
	}
}

// secrets are the contents of all Secrets that hold certificates.
func secrets(t *testing.T, docs []manifest.Document) map[string]any {
	t.Helper()
	out := make(map[string]any)
	for _, d := range docs {
		if d.Object["kind"] == "Secret" && name(d) != overridesName {
			out[name(d)] = d.Object["data"]
		}
	}
	if len(out) < 5 {
		t.Errorf("only %d Secrets", len(out))
	}
	return out
}

// TestUpgradeKeeps: certificates and what was asked for stay; new flags are
// remembered.
func TestUpgradeKeeps(t *testing.T) {
	s, before := installed(t, "--proxy-log-level=debug")
	after, problem := run(t, "upgrade", "--kubeconfig", s.Kubeconfig, "--proxy-uid=7")
	if problem != "" {
		t.Fatal(problem)
	}
	if diff := cmp.Diff(secrets(t, before), secrets(t, after)); diff != "" {
		t.Errorf("certificates changed (-before +after):\n%s", diff)
	}
	v := values(t, after)
	if text(v, "proxy.logLevel") != "debug" || text(v, portsPath) != "443,6443" {
		t.Error("the upgrade forgot what was asked for")
	}
	asked := datum(find1(t, after, "Secret", overridesName), overridesName)
	if diff := cmp.Diff("proxy:\n  logLevel: debug\n  uid: 7\n", asked); diff != "" {
		t.Errorf("what is remembered (-want +got):\n%s", diff)
	}
	apply(t, s, after)
	third, problem := run(t, "upgrade", "--kubeconfig", s.Kubeconfig, "--reset-values")
	if asked := datum(find1(t, third, "Secret", overridesName), overridesName); problem != "" || asked != "{}\n" {
		t.Errorf("--reset-values remembers %q; %s", asked, problem)
	}
	if crds, problem := run(t, "upgrade", "--crds", "--kubeconfig", s.Kubeconfig); problem != "" || crds[0].Object["kind"] != "CustomResourceDefinition" {
		t.Error("--crds:", problem)
	}
}

// TestUpgradeFollowsRotation: an issuer that was rotated in the cluster is not
// set back to the one that was given at the installation.
func TestUpgradeFollowsRotation(t *testing.T) {
	root := newAuthority(t, "root", nil, -time.Hour, time.Hour)
	first := newAuthority(t, "identity.linkerd.cluster.local", root, -time.Hour, time.Hour)
	s, _ := installed(t, "--identity-trust-anchors-file", write(t, "ca", root.crt()),
		"--identity-issuer-certificate-file", write(t, "crt", first.crt()), "--identity-issuer-key-file", write(t, "key", first.keyPEM(t)))
	second := newAuthority(t, "identity.linkerd.cluster.local", root, -time.Hour, time.Hour)
	secret := s.Object("/api/v1/namespaces/linkerd/secrets/" + issuerName)
	secret.Object["data"] = encoded(Tree{"crt.pem": second.crt(), "key.pem": second.keyPEM(t)})
	s.Put(secret)
	docs, problem := run(t, "upgrade", "--kubeconfig", s.Kubeconfig)
	if problem != "" {
		t.Fatal(problem)
	}
	if got := issuer(t, docs); strings.TrimSpace(got) != strings.TrimSpace(second.crt()) {
		t.Error("the upgrade set the issuer back")
	}
	if roots := datum(find1(t, docs, "ConfigMap", trustRootsName), bundleKey); strings.TrimSpace(roots) != strings.TrimSpace(root.crt()) {
		t.Error("the upgrade changed the anchors")
	}

	// One more anchor, and the issuer stays.
	both := root.crt() + newAuthority(t, "next", nil, -time.Hour, time.Hour).crt()
	docs, problem = run(t, "upgrade", "--kubeconfig", s.Kubeconfig, "--identity-trust-anchors-file", write(t, "both", both))
	if problem != "" {
		t.Fatal(problem)
	}
	if roots := datum(find1(t, docs, "ConfigMap", trustRootsName), bundleKey); len(certificates(roots)) != 2 || strings.TrimSpace(issuer(t, docs)) != strings.TrimSpace(second.crt()) {
		t.Errorf("with one more anchor: %d anchors", len(certificates(roots)))
	}
}

// issuer is the issuer's certificate in manifests.
func issuer(t *testing.T, docs []manifest.Document) string {
	t.Helper()
	return datum(find1(t, docs, "Secret", issuerName), "crt.pem")
}

// TestCredentials: what identity would refuse in the cluster is refused here.
func TestCredentials(t *testing.T) {
	root := newAuthority(t, "root", nil, -time.Hour, time.Hour)
	good := newAuthority(t, "issuer", root, -time.Hour, time.Hour)
	late := newAuthority(t, "issuer", root, -time.Hour, -time.Minute)
	early := newAuthority(t, "issuer", root, time.Minute, time.Hour)
	other := newAuthority(t, "other", nil, -time.Hour, time.Hour)
	tests := []struct {
		name         string
		anchors, crt *authority
		key          *authority
		want         string
	}{
		{"good", root, good, good, ""},
		{"another's key", root, good, root, "does not match"},
		{"another's signature", other, good, good, "no trust anchor signed the issuer"},
		{"expired", root, late, late, "the issuer has expired on "},
		{"not yet valid", root, early, early, "the issuer is valid only from "},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			docs := []manifest.Document{
				{Object: Tree{
					"kind": "Secret", "metadata": Tree{"name": issuerName},
					"data": encoded(Tree{"crt.pem": tt.crt.crt(), "key.pem": tt.key.keyPEM(t)}),
				}},
				{Object: Tree{"kind": "ConfigMap", "metadata": Tree{"name": trustRootsName}, "data": Tree{bundleKey: tt.anchors.crt()}}},
			}
			got := fmt.Sprint(credentials(docs, time.Now(), true))
			if (got == "<nil>") != (tt.want == "") || !strings.Contains(got, tt.want) || strings.Contains(got, "PRIVATE") {
				t.Errorf("problem %q, want %q", got, tt.want)
			}
		})
	}
	leaf := *good.cert
	leaf.IsCA = false
	if err := fit(&leaf, time.Now(), true); err == nil {
		t.Error("a leaf was taken")
	}
}

// TestUpgradeOfExpired: what has expired can be upgraded, and replaced.
func TestUpgradeOfExpired(t *testing.T) {
	root := newAuthority(t, "root", nil, -2*time.Hour, time.Hour)
	was := newAuthority(t, "issuer", root, -2*time.Hour, time.Hour)
	s, _ := installed(t, "--identity-trust-anchors-file", write(t, "ca", root.crt()),
		"--identity-issuer-certificate-file", write(t, "crt", was.crt()), "--identity-issuer-key-file", write(t, "key", was.keyPEM(t)))
	old := newAuthority(t, "old", nil, -2*time.Hour, -time.Hour)
	secret := s.Object("/api/v1/namespaces/linkerd/secrets/" + issuerName)
	secret.Object["data"] = encoded(Tree{"crt.pem": old.crt(), "key.pem": old.keyPEM(t)})
	s.Put(secret)
	roots := s.Object("/api/v1/namespaces/linkerd/configmaps/" + trustRootsName)
	roots.Object["data"] = Tree{bundleKey: old.crt()}
	s.Put(roots)
	if _, got := run(t, "upgrade", "--kubeconfig", s.Kubeconfig); got != "" {
		t.Errorf("upgrade with an expired issuer: %s", got)
	}
	if _, got := run(t, "upgrade", "--kubeconfig", s.Kubeconfig, "--identity-trust-anchors-file", write(t, "ca", root.crt()),
		"--identity-issuer-certificate-file", write(t, "crt", was.crt()), "--identity-issuer-key-file", write(t, "key", was.keyPEM(t))); got != "" {
		t.Errorf("replacing an expired issuer: %s", got)
	}
}

// TestUpgradeAsksProxies: an issuer that running proxies do not trust is refused.
func TestUpgradeAsksProxies(t *testing.T) {
	s, docs := installed(t)
	old := datum(find1(t, docs, "ConfigMap", trustRootsName), bundleKey)
	pods := func(anchors string) {
		for _, pod := range []Tree{
			{"name": "web", "image": "web"}, {"name": "linkerd-proxy", "image": "p", "env": []any{Tree{"name": anchorsEnv, "value": anchors}}},
		} {
			s.Put(&unstructured.Unstructured{Object: Tree{
				"apiVersion": "v1", "kind": "Pod", "metadata": Tree{"name": "p-" + text(pod, "name"), "namespace": "shop", "labels": Tree{"linkerd.io/control-plane-ns": "linkerd"}},
				"spec": Tree{"containers": []any{pod}},
			}})
		}
	}
	pods(old)
	root := newAuthority(t, "root", nil, -time.Hour, time.Hour)
	args := []string{
		"upgrade", "--kubeconfig", s.Kubeconfig, "--identity-trust-anchors-file", write(t, "ca", root.crt()),
		"--identity-issuer-certificate-file", write(t, "crt", root.crt()), "--identity-issuer-key-file", write(t, "key", root.keyPEM(t)),
	}
	_, got := run(t, args...)
	if !strings.HasPrefix(got, "weft: 1 running proxy would not trust the issuer, and lose connections\n") || !strings.Contains(got, "shop/p-linkerd-proxy") {
		t.Errorf("an unknown issuer: %s", got)
	}
	if _, got := run(t, append(args, "--force")...); got != "" {
		t.Errorf("--force: %s", got)
	}
	pods(old + "\n" + root.crt())
	if _, got := run(t, args...); got != "" {
		t.Errorf("with both anchors: %s", got)
	}
}

// An expired root can be replaced: that is when people need it most.
func TestSignedByLooksPastExpiry(t *testing.T) {
	root := newAuthority(t, "root", nil, -3*time.Hour, -time.Hour)
	issuer := newAuthority(t, "issuer", root, -2*time.Hour, -time.Hour)
	other := newAuthority(t, "root", nil, -3*time.Hour, time.Hour)
	junk := "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
	if err := signedBy(certificates(issuer.crt()), certificates(junk+"\r\n"+other.crt()+root.crt()+"\n\n")); err != nil {
		t.Error(err)
	}
	if err := signedBy(certificates(issuer.crt()), certificates(other.crt())); err == nil {
		t.Error("signed by another root")
	}
}

func TestUpgradeOfNothing(t *testing.T) {
	s := newCluster(t, "")
	if _, got := run(t, "upgrade", "--kubeconfig", s.Kubeconfig); !strings.HasPrefix(got, "weft: there is no control plane in namespace linkerd\n") {
		t.Error(got)
	}
	s = newCluster(t, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: linkerd-config, namespace: linkerd}\n")
	if _, got := run(t, "upgrade", "--kubeconfig", s.Kubeconfig); !strings.Contains(got, "`helm upgrade`") {
		t.Error(got)
	}
}

func TestUpgradeFromManifests(t *testing.T) {
	docs, _ := run(t, "install", "--ignore-cluster", "--proxy-log-level=debug")
	var b bytes.Buffer
	if err := manifest.Write(&b, manifest.YAML, docs); err != nil {
		t.Fatal(err)
	}
	after, problem := run(t, "upgrade", "--from-manifests", write(t, "m.yaml", b.String()))
	if problem != "" {
		t.Fatal(problem)
	}
	if diff := cmp.Diff(secrets(t, docs), secrets(t, after)); diff != "" || text(values(t, after), "proxy.logLevel") != "debug" {
		t.Errorf("certificates (-before +after):\n%s", diff)
	}
}

func TestUninstall(t *testing.T) {
	s, docs := installed(t)
	pod := func(ns, name string, labels Tree) {
		labels["linkerd.io/control-plane-ns"] = "linkerd"
		s.Put(&unstructured.Unstructured{Object: Tree{
			"apiVersion": "v1", "kind": "Pod", "metadata": Tree{"name": name, "namespace": ns, "labels": labels},
			"spec": Tree{"initContainers": []any{Tree{"name": "linkerd-proxy"}}},
		}})
	}
	pod("linkerd", "own", Tree{"linkerd.io/control-plane-component": "identity"})
	pod("shop", "web", Tree{})
	_, got := run(t, "uninstall", "--kubeconfig", s.Kubeconfig)
	if !strings.HasPrefix(got, "weft: there are proxies of this control plane in 1 pod\n") || !strings.Contains(got, "shop/web") || strings.Contains(got, "own") {
		t.Errorf("with an injected pod: %s", got)
	}
	gone, problem := run(t, "uninstall", "--force", "--kubeconfig", s.Kubeconfig)
	if problem != "" {
		t.Fatal(problem)
	}
	for _, d := range docs {
		if text(d.Object, "metadata.namespace") == "kube-system" {
			continue // roles for what is there already
		}
		if !slices.ContainsFunc(gone, func(g manifest.Document) bool { return key(g.Object) == key(d.Object) }) {
			t.Errorf("%s stays", key(d.Object))
		}
	}
	if first, last := gone[0].Object["kind"], gone[len(gone)-1].Object["kind"]; first != "MutatingWebhookConfiguration" || last != "Namespace" {
		t.Errorf("it begins with a %s and ends with a %s", first, last)
	}
	if _, got := run(t, "uninstall", "--kubeconfig", newCluster(t, "").Kubeconfig); !strings.HasPrefix(got, "weft: there is nothing to uninstall\n") {
		t.Error(got)
	}
}

// TestPrune: what an earlier version made goes, what others made stays.
func TestPrune(t *testing.T) {
	s, _ := installed(t)
	config := func(name, by string) {
		s.Put(&unstructured.Unstructured{Object: Tree{"apiVersion": "v1", "kind": "ConfigMap", "metadata": Tree{
			"name": name, "namespace": "linkerd", "labels": Tree{"linkerd.io/control-plane-ns": "linkerd"}, "annotations": Tree{"linkerd.io/created-by": by},
		}}})
	}
	config("of-old", "weft/cli v0.1")
	config("of-others", "somebody")
	docs, problem := run(t, "prune", "--kubeconfig", s.Kubeconfig)
	if problem != "" {
		t.Fatal(problem)
	}
	var names []string
	for _, d := range docs {
		names = append(names, key(d.Object))
	}
	if diff := cmp.Diff([]string{"/ConfigMap/linkerd/of-old"}, names); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
