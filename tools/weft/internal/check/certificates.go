package check

import (
	"context"
	"encoding/base64"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/weftmesh/weft/services/kit/say"
	"github.com/weftmesh/weft/tools/weft/internal/check/engine"
	"github.com/weftmesh/weft/tools/weft/internal/check/judge"
	"github.com/weftmesh/weft/tools/weft/internal/kube"
)

const (
	issuerSecret = "linkerd-identity-issuer"
	rootsMap     = "linkerd-identity-trust-roots"
	rootsKey     = "ca-bundle.crt"
	kubeScheme   = "kubernetes.io/tls"
)

const rotate = "weft identity rotate"

// chain is the mesh's anchors and its issuer.
type chain struct {
	anchors, issuer judge.Bundle
	text            string // of the anchors
}

// readChain reads both; names are those of spec/identity-injector-mirror.md §1.
func (w *World) readChain(ctx context.Context) (chain, error) {
	var c chain
	secret, err := get[corev1.Secret](ctx, w.door, kube.Secrets, w.Namespace, issuerSecret)
	from := fmt.Sprintf("Secret %s/%s", w.Namespace, issuerSecret)
	if apierrors.IsNotFound(err) {
		return c, &say.Problem{What: from + " does not exist", Next: reinstall + "; with identity.issuer.scheme kubernetes.io/tls it must be made by you or by cert-manager", Err: err}
	}
	if err != nil {
		return c, err
	}
	certKey, keyKey := "crt.pem", "key.pem"
	if w.config.Identity.Issuer.Scheme == kubeScheme {
		certKey, keyKey = "tls.crt", "tls.key"
	}
	c.issuer, err = judge.ReadPair(fmt.Sprintf("%s keys %s, %s", from, certKey, keyKey), secret.Data[certKey], secret.Data[keyKey])
	if err != nil {
		return c, err
	}
	roots, err := get[corev1.ConfigMap](ctx, w.door, kube.ConfigMaps, w.Namespace, rootsMap)
	where := fmt.Sprintf("ConfigMap %s/%s key %s", w.Namespace, rootsMap, rootsKey)
	switch {
	case err == nil:
		c.text = roots.Data[rootsKey]
	case apierrors.IsNotFound(err) && w.config.Identity.Issuer.Scheme == kubeScheme && len(secret.Data["ca.crt"]) > 0:
		where, c.text = from+" key ca.crt", string(secret.Data["ca.crt"])
	case apierrors.IsNotFound(err):
		return c, &say.Problem{What: where + " does not exist", Next: reinstall + "; with identity.externalCA it must be made by you", Err: err}
	default:
		return c, err
	}
	c.anchors, err = judge.ReadBundle(where, []byte(c.text))
	return c, err
}

func (w *World) identity() engine.Category {
	of := func(name, anchor string, kind engine.Check, judged func(chain) error) engine.Check {
		kind.Name, kind.Anchor = name, "l5d-identity-"+anchor
		kind.Run = func(ctx context.Context) error {
			c, err := w.readChain(ctx)
			if err != nil {
				return err
			}
			return judged(c)
		}
		return kind
	}
	fatal, warning := engine.Check{Fatal: true}, engine.Check{Warning: true}
	const newRoots = "replace the anchors before they end: " + rotate + " (first add the new anchor, then restart the workloads, then drop the old)"
	const newIssuer = "replace the issuer: " + rotate + ", or let cert-manager renew it"
	first := func(b judge.Bundle) judge.Bundle { return judge.Bundle{From: b.From, Certs: b.Certs[:1]} }
	return engine.Category{Name: "linkerd-identity", Checks: []engine.Check{
		of("certificate config is valid", "cert-config-valid", fatal, func(chain) error { return nil }),
		of("trust anchors are using supported crypto algorithm", "trustAnchors-use-supported-crypto", fatal, func(c chain) error { return judge.Anchors(c.anchors) }),
		of("trust anchors are within their validity period", "trustAnchors-are-time-valid", fatal, func(c chain) error { return judge.Valid(c.anchors, w.Now(), newRoots) }),
		of("trust anchors are valid for at least 60 days", "trustAnchors-not-expiring-soon", warning, func(c chain) error { return judge.Lasting(c.anchors, w.Now(), newRoots) }),
		of("issuer cert is using supported crypto algorithm", "issuer-cert-uses-supported-crypto", fatal, func(c chain) error { return judge.Issuer(c.issuer) }),
		of("issuer cert is within its validity period", "issuer-cert-is-time-valid", fatal, func(c chain) error { return judge.Valid(first(c.issuer), w.Now(), newIssuer) }),
		of("issuer cert is valid for at least 60 days", "issuer-cert-not-expiring-soon", warning, func(c chain) error { return judge.Lasting(first(c.issuer), w.Now(), newIssuer) }),
		of("issuer cert is issued by the trust anchor", "issuer-cert-issued-by-trust-anchor", engine.Check{}, func(c chain) error { return judge.Issued(c.issuer, c.anchors, w.Now()) }),
	}}
}

func (w *World) identityDataPlane() engine.Category {
	return engine.Category{Name: "linkerd-identity-data-plane", Checks: []engine.Check{
		{Name: "data plane proxies certificate match CA", Anchor: "l5d-identity-data-plane-proxies-certs-match-ca", Warning: true, Run: func(ctx context.Context) error {
			c, err := w.readChain(ctx)
			if err != nil {
				return err
			}
			pods, err := w.meshedPods(ctx)
			if err != nil {
				return err
			}
			return judge.TrustRoots(pods, c.text, c.anchors)
		}},
	}}
}

// hook is a webhook of the control plane.
type hook struct {
	name   string // in the checks' names and anchors
	gvr    schema.GroupVersionResource
	config string // name of the webhook configuration
	secret string
	host   string // name of the Service
}

var hooks = []hook{
	{"proxy-injector", kube.MutatingWebhooks, injectorHook, "linkerd-proxy-injector-k8s-tls", "linkerd-proxy-injector"},
	{"sp-validator", kube.ValidatingWebhooks, profileHook, "linkerd-sp-validator-k8s-tls", "linkerd-sp-validator"},
	{"policy-validator", kube.ValidatingWebhooks, policyHook, "linkerd-policy-validator-k8s-tls", "linkerd-policy-validator"},
}

func (w *World) webhooks() engine.Category {
	var checks []engine.Check
	for _, h := range hooks {
		next := fmt.Sprintf("delete Secret %s and %s, or let cert-manager renew it", h.secret, reinstall)
		checks = append(checks,
			engine.Check{Name: h.name + " webhook has valid cert", Anchor: "l5d-" + h.name + "-webhook-cert-valid", Fatal: true, Run: func(ctx context.Context) error {
				cert, roots, err := w.hookCerts(ctx, h)
				if err != nil {
					return err
				}
				return judge.Serves(cert, roots, w.Now(), fmt.Sprintf("%s.%s.svc", h.host, w.Namespace), next)
			}},
			engine.Check{Name: h.name + " cert is valid for at least 60 days", Anchor: "l5d-" + h.name + "-webhook-cert-not-expiring-soon", Warning: true, Run: func(ctx context.Context) error {
				cert, _, err := w.hookCerts(ctx, h)
				if err != nil {
					return err
				}
				return judge.Lasting(judge.Bundle{From: cert.From, Certs: cert.Certs[:1]}, w.Now(), next)
			}},
		)
	}
	return engine.Category{Name: "linkerd-webhooks-and-apisvc-tls", Checks: checks}
}

// hookCerts reads what a webhook's server shows and what the API server trusts.
func (w *World) hookCerts(ctx context.Context, h hook) (cert, roots judge.Bundle, err error) {
	if err := w.exist(ctx, reinstall, thing{kube.Secrets, "Secret", w.Namespace, h.secret}); err != nil {
		return cert, roots, err
	}
	secret, err := get[corev1.Secret](ctx, w.door, kube.Secrets, w.Namespace, h.secret)
	if err != nil {
		return cert, roots, err
	}
	from := fmt.Sprintf("Secret %s/%s keys tls.crt, tls.key", w.Namespace, h.secret)
	if cert, err = judge.ReadPair(from, secret.Data["tls.crt"], secret.Data["tls.key"]); err != nil {
		return cert, roots, err
	}
	obj, err := w.door.Get(ctx, h.gvr, "", h.config)
	if err != nil {
		return cert, roots, err
	}
	roots, err = caBundle(obj)
	return cert, roots, err
}

// caBundle is the bundle of all webhooks of a configuration.
func caBundle(obj *unstructured.Unstructured) (judge.Bundle, error) {
	from := fmt.Sprintf("%s %s webhooks[].clientConfig.caBundle", obj.GetKind(), obj.GetName())
	webhooks, _, err := unstructured.NestedSlice(obj.Object, "webhooks")
	if err != nil {
		return judge.Bundle{}, fmt.Errorf("reading %s: %w", from, err)
	}
	var text []byte
	for _, one := range webhooks {
		m, ok := one.(map[string]any)
		if !ok {
			continue
		}
		encoded, _, _ := unstructured.NestedString(m, "clientConfig", "caBundle")
		pem, err := base64.StdEncoding.DecodeString(encoded)
		if err != nil {
			return judge.Bundle{}, &say.Problem{What: from + " is not base64", Next: reinstall, Err: err}
		}
		text = append(append(text, pem...), '\n')
	}
	return judge.ReadBundle(from, text)
}
