package charts_test

import (
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/weftmesh/weft/charts"
)

// world is a cluster as templates see it.
type world map[string]map[string]any

func (w world) lookup(_, kind, namespace, name string) (map[string]any, error) {
	return w[kind+" "+namespace+"/"+name], nil
}

// install renders the control plane into w.
func (w world) install(t *testing.T, over string, upgrade bool) []charts.Manifest {
	t.Helper()
	t.Helper()
	list := renderedWith(t, charts.ControlPlane, values(t, over), charts.Options{Lookup: w.lookup, Upgrade: upgrade})
	for _, m := range list {
		var o map[string]any
		if err := yaml.Unmarshal([]byte(m.YAML), &o); err != nil {
			t.Fatal(err)
		}
		w[title(m)] = o
	}
	return list
}

// data is one entry of a Secret.
func (w world) data(t *testing.T, secret, key string) string {
	t.Helper()
	t.Helper()
	d, ok := w["Secret linkerd/"+secret]["data"].(map[string]any)
	if !ok {
		t.Fatalf("there is no Secret %s", secret)
	}
	text, _ := d[key].(string)
	b, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// age moves the day on which a Secret is to be renewed into the past.
func (w world) age(t *testing.T, secret string) {
	t.Helper()
	t.Helper()
	meta, ok := w["Secret linkerd/"+secret]["metadata"].(map[string]any)
	if !ok {
		t.Fatalf("there is no Secret %s", secret)
	}
	annotations, ok := meta["annotations"].(map[string]any)
	if !ok {
		t.Fatalf("Secret %s has no annotations", secret)
	}
	annotations["charts.weftmesh.io/renew-after"] = fmt.Sprint(time.Now().Add(-time.Hour).Unix())
}

// TestUpgradeChangesNothing: with the cluster before it, the same chart with the
// same values makes the same manifests, keys included.
func TestUpgradeChangesNothing(t *testing.T) {
	for name, over := range map[string]string{"default": "", "everything": everything} {
		t.Run(name, func(t *testing.T) {
			w := world{}
			first := w.install(t, over, false)
			second := w.install(t, over, true)
			if a, b := charts.YAML(first), charts.YAML(second); string(a) != string(b) {
				t.Errorf("it changes:\n%s", difference(t, first, second))
			}
		})
	}
}

// TestUpgradeKeepsRotation: an issuer and anchors that were rotated in the
// cluster are not put back by an upgrade.
func TestUpgradeKeepsRotation(t *testing.T) {
	w := world{}
	w.install(t, "", false)
	other := world{}
	other.install(t, "", false)
	w["Secret linkerd/linkerd-identity-issuer"] = other["Secret linkerd/linkerd-identity-issuer"]
	bundle := w.anchors(t) + "\n" + other.anchors(t)
	w["ConfigMap linkerd/linkerd-identity-trust-roots"]["data"] = map[string]any{"ca-bundle.crt": bundle}

	w.install(t, "", true)
	if got := w.anchors(t); got != bundle {
		t.Errorf("the bundle is\n%s\nand was\n%s", got, bundle)
	}
	if w.data(t, "linkerd-identity-issuer", "crt.pem") != other.data(t, "linkerd-identity-issuer", "crt.pem") {
		t.Error("the issuer was put back")
	}
}

func (w world) anchors(t *testing.T) string {
	t.Helper()
	t.Helper()
	d, ok := w["ConfigMap linkerd/linkerd-identity-trust-roots"]["data"].(map[string]any)
	if !ok {
		t.Fatal("there are no trust anchors")
	}
	text, _ := d["ca-bundle.crt"].(string)
	return text
}

// TestRenewal: what was made here is made anew in the second half of its life;
// the bus keeps its authority, and the API server trusts a webhook's former
// certificate until its server has the new one.
func TestRenewal(t *testing.T) {
	w := world{}
	w.install(t, "", false)
	before := maps.Clone(w)
	webhooks := []string{"linkerd-proxy-injector", "linkerd-policy-validator", "linkerd-sp-validator"}
	for _, hook := range webhooks {
		w.age(t, hook+"-k8s-tls")
	}
	w.age(t, "weft-bus-policy")
	w.install(t, "", true)

	if w.data(t, "weft-bus-policy", "tls.crt") == before.data(t, "weft-bus-policy", "tls.crt") {
		t.Error("policy's certificate was not renewed")
	}
	if w.data(t, "weft-bus-watcher", "tls.crt") != before.data(t, "weft-bus-watcher", "tls.crt") {
		t.Error("the watcher's certificate was renewed")
	}
	if w.data(t, "weft-bus-policy", "ca.crt") != before.data(t, "weft-bus-policy", "ca.crt") {
		t.Error("the bus's authority changed")
	}
	verify(t, w.data(t, "weft-bus-policy", "tls.crt"), w.data(t, "weft-bus-ca", "tls.crt"), "policy.bus.weft")

	for _, hook := range webhooks {
		secret := hook + "-k8s-tls"
		ca := w.data(t, secret, "ca.crt")
		for which, crt := range map[string]string{"new": w.data(t, secret, "tls.crt"), "former": before.data(t, secret, "tls.crt")} {
			if !strings.Contains(ca, strings.TrimSpace(crt)) {
				t.Errorf("the %s certificate of %s is not trusted", which, hook)
			}
			verify(t, crt, ca, hook+".linkerd.svc")
		}
		if w.data(t, secret, "tls.crt") == before.data(t, secret, "tls.crt") {
			t.Errorf("the certificate of %s was not renewed", hook)
		}
	}
}

// TestMadeCertificates are what their readers expect.
func TestMadeCertificates(t *testing.T) {
	w := world{}
	w.install(t, "clusterDomain: kube.example", false)
	anchors := w.anchors(t)
	issuer := parsed(t, w.data(t, "linkerd-identity-issuer", "crt.pem"))
	if !issuer.IsCA || issuer.Subject.CommonName != "identity.linkerd.kube.example" || issuer.PublicKeyAlgorithm != x509.ECDSA {
		t.Errorf("issuer: CA %v, %s, %s", issuer.IsCA, issuer.Subject, issuer.PublicKeyAlgorithm)
	}
	if strings.TrimSpace(w.data(t, "linkerd-identity-issuer", "crt.pem")) != strings.TrimSpace(anchors) {
		t.Error("the issuer is not its own anchor")
	}
	ca := w.data(t, "weft-bus-ca", "tls.crt")
	for _, name := range []string{"weft-nats.linkerd.svc.kube.example", "weft-nats-1.weft-nats-headless.linkerd.svc.kube.example"} {
		verify(t, w.data(t, "weft-nats-tls", "tls.crt"), ca, name)
	}
	for _, service := range []string{"watcher", "destination", "policy", "identity", "injector", "mirror", "heartbeat", "cli"} {
		crt := w.data(t, "weft-bus-"+service, "tls.crt")
		verify(t, crt, ca, service+".bus.weft")
		if names := parsed(t, crt).DNSNames; !slices.Equal(names, []string{service + ".bus.weft"}) {
			t.Errorf("%s is %v: more than one user", service, names)
		}
	}
}

func parsed(t *testing.T, text string) *x509.Certificate {
	t.Helper()
	t.Helper()
	block, _ := pem.Decode([]byte(text))
	if block == nil {
		t.Fatalf("no PEM: %q", text)
	}
	c, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func verify(t *testing.T, crt, ca, name string) {
	t.Helper()
	t.Helper()
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM([]byte(ca))
	_, err := parsed(t, crt).Verify(x509.VerifyOptions{Roots: roots, DNSName: name, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
	if err != nil {
		t.Errorf("%s: %v", name, err)
	}
}

// TestSecretOfOthers: an issuer that cert-manager made is not written over.
func TestSecretOfOthers(t *testing.T) {
	w := world{"Secret linkerd/linkerd-identity-issuer": {"apiVersion": "v1", "kind": "Secret", "data": map[string]any{"tls.crt": "eA=="}}}
	_, err := charts.Render(charts.ControlPlane, nil, charts.Options{Lookup: w.lookup})
	if err == nil || !strings.Contains(err.Error(), "has no crt.pem") || !strings.Contains(err.Error(), "next:") {
		t.Errorf("it says %v", err)
	}
}
