package install

import (
	"cmp"
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/weftmesh/weft/services/kit/say"
	"github.com/weftmesh/weft/tools/weft/internal/kube"
	"github.com/weftmesh/weft/tools/weft/internal/manifest"
)

const (
	issuerName = "linkerd-identity-issuer"
	// anchorsEnv is where a proxy has its trust anchors from.
	anchorsEnv = "LINKERD2_PROXY_IDENTITY_TRUST_ANCHORS"
)

// issuerOf is the certificate of the issuer that there will be, PEM: the one in
// rendered manifests, or where it is not theirs to make, the cluster's.
func issuerOf(docs []manifest.Document, look find, ns string) (string, error) {
	for _, d := range docs {
		if d.Object["kind"] == "Secret" && name(d) == issuerName {
			return cmp.Or(datum(d.Object, "crt.pem"), datum(d.Object, "tls.crt")), nil
		}
	}
	secret, err := look("v1", "Secret", ns, issuerName)
	return cmp.Or(datum(secret, "tls.crt"), datum(secret, "crt.pem")), err
}

// trusted makes sure that every running proxy trusts what issuer signs. A proxy
// that takes its anchors from a ConfigMap is asked by the ConfigMap.
func trusted(ctx context.Context, client *kube.Client, issuer string) error {
	if issuer == "" {
		return nil
	}
	chain := certificates(issuer)
	if len(chain) == 0 {
		return &say.Problem{What: "the issuer's certificate is none", Why: "it is no PEM of a certificate", Next: "see what --identity-issuer-certificate-file names"}
	}
	pods, err := client.List(ctx, kube.Pods, "", "linkerd.io/control-plane-ns="+client.Namespace())
	if err != nil {
		return err
	}
	verdicts := make(map[string]error) // by bundle: all pods but a few have the same
	var doubtful []string
	var why error
	for _, pod := range pods {
		bundle := anchorsOf(&pod)
		if over(&pod) || bundle == "" {
			continue
		}
		verdict, known := verdicts[bundle]
		if !known {
			verdict = signedBy(chain, certificates(bundle))
			verdicts[bundle] = verdict
		}
		if verdict != nil {
			doubtful = append(doubtful, pod.GetNamespace()+"/"+pod.GetName())
			why = verdict
		}
	}
	if len(doubtful) == 0 {
		return nil
	}
	slices.Sort(doubtful)
	return &say.Problem{
		What: count(len(doubtful), "running proxy", "running proxies") + " would not trust the issuer, and lose connections",
		Why:  fmt.Sprintf("%v; proxies that have other anchors: %s", why, some(doubtful)),
		Next: "give the anchors of both issuers first (--identity-trust-anchors-file) and restart those pods; `weft identity rotate` does it in steps; --force goes on regardless",
		Err:  why,
	}
}

// over says whether a pod has ended.
func over(pod *unstructured.Unstructured) bool {
	phase, _, _ := unstructured.NestedString(pod.Object, "status", "phase")
	return phase == "Succeeded" || phase == "Failed"
}

// anchorsOf is the bundle that is written into a pod's proxy; "" if it has no
// proxy, or the bundle is elsewhere.
func anchorsOf(pod *unstructured.Unstructured) string {
	env, _, _ := unstructured.NestedSlice(proxyOf(pod), "env")
	for _, e := range env {
		if e, ok := e.(Tree); ok && e["name"] == anchorsEnv {
			value, _ := e["value"].(string)
			return value
		}
	}
	return ""
}

// certificates reads what of a bundle can be read: one bad certificate must not
// hide the others.
func certificates(bundle string) []*x509.Certificate {
	var out []*x509.Certificate
	rest := []byte(strings.TrimSpace(bundle))
	for {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			return out
		}
		if cert, err := x509.ParseCertificate(block.Bytes); err == nil {
			out = append(out, cert)
		}
	}
}

// signedBy verifies a chain, leaf first, against anchors. How long it is valid
// is not looked at: an expired issuer must not keep anybody from replacing it.
func signedBy(chain, anchors []*x509.Certificate) error {
	err := errors.New("there are no anchors")
	for _, anchor := range anchors {
		roots, middle := x509.NewCertPool(), x509.NewCertPool()
		roots.AddCert(anchor)
		at := anchor.NotBefore
		for i, c := range chain {
			if c.NotBefore.After(at) {
				at = c.NotBefore
			}
			if i > 0 {
				middle.AddCert(c)
			}
		}
		_, err = chain[0].Verify(x509.VerifyOptions{
			Roots: roots, Intermediates: middle, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}, CurrentTime: at,
		})
		if err == nil {
			return nil
		}
	}
	return err
}

// hasProxy says whether a pod has a proxy.
func hasProxy(pod *unstructured.Unstructured) bool { return proxyOf(pod) != nil }

// proxyOf is a pod's proxy, which may be a native sidecar; nil if it has none.
func proxyOf(pod *unstructured.Unstructured) Tree {
	for _, list := range []string{"containers", "initContainers"} {
		containers, _, _ := unstructured.NestedSlice(pod.Object, "spec", list)
		for _, c := range containers {
			if container, ok := c.(Tree); ok && container["name"] == "linkerd-proxy" {
				return container
			}
		}
	}
	return nil
}
