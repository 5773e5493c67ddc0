package rotate

import (
	"context"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/weftmesh/weft/services/kit/say"
	"github.com/weftmesh/weft/tools/weft/internal/kube"
	"github.com/weftmesh/weft/tools/weft/internal/pki"
)

// Stage keeps an issuer in the cluster until every proxy trusts its anchor, so
// that the rotation can go on from any machine.
func Stage(ctx context.Context, to writer, ns string, issuer *pki.Authority) error {
	key, err := issuer.KeyPEM()
	if err != nil {
		return err
	}
	data := map[string]any{"crt.pem": encode(issuer.PEM()), "key.pem": encode(key)}
	obj := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Secret", "type": string(corev1.SecretTypeOpaque),
		"metadata": map[string]any{
			"name": stagedSecret, "namespace": ns,
			"labels": map[string]any{"linkerd.io/control-plane-component": "identity", "linkerd.io/control-plane-ns": ns},
		},
		"data": data,
	}}
	_, err = to.Create(ctx, obj)
	if !apierrors.IsAlreadyExists(err) {
		return err
	}
	there, err := to.Get(ctx, kube.Secrets, ns, stagedSecret)
	if err != nil {
		return err
	}
	return edit(ctx, to, there, func(now map[string]any, _ map[string]string) {
		clear(now)
		maps.Copy(now, data)
	})
}

func encode(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }

func unstage(ctx context.Context, to writer, ns string) error {
	if err := to.Delete(ctx, kube.Secrets, ns, stagedSecret); err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	return nil
}

func (f *Facts) replaceByStaged(ctx context.Context, to writer) error {
	chain, secret, err := staged(ctx, to, f.Namespace)
	if err != nil {
		return err
	}
	if len(chain) == 0 {
		return errors.New("replacing the issuer: Secret " + stagedSecret + " has no certificate")
	}
	key, err := pki.ParseKey(secret.Data["key.pem"])
	if err != nil {
		return fmt.Errorf("replacing the issuer: Secret %s: %w", stagedSecret, err)
	}
	issuer, err := pki.Pair(chain, key, "certificate and key in Secret "+stagedSecret)
	if err != nil {
		return err
	}
	if err := f.Replace(ctx, to, issuer); err != nil {
		return err
	}
	return unstage(ctx, to, f.Namespace)
}

// Replace puts an issuer in place. The identity service takes it as soon as the
// kubelets have brought it there, without a restart.
func (f *Facts) Replace(ctx context.Context, to writer, issuer *pki.Authority) error {
	if err := pki.Leads(append([]*x509.Certificate{issuer.Cert}, issuer.Chain...), f.Bundle, f.Now); err != nil {
		return &say.Problem{
			What: "the issuer cannot be used", Why: "it leads to none of the mesh's trust anchors now: " + err.Error(),
			Next: "give one that is valid and signed by an anchor of the mesh (`weft identity rotate` lists them)", Err: err,
		}
	}
	key, err := issuer.KeyPEM()
	if err != nil {
		return err
	}
	names := f.names()
	write := func(data map[string]any, notes map[string]string) {
		data[names.crt], data[names.key] = encode(issuer.PEM()), encode(key)
		notes[noteIssued] = stamp(f.Now)
	}
	obj, err := to.Get(ctx, kube.Secrets, f.Namespace, issuerSecret)
	switch {
	case apierrors.IsNotFound(err):
		data, notes := map[string]any{}, map[string]string{}
		write(data, notes)
		obj = &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "Secret", "type": string(corev1.SecretTypeOpaque), "data": data,
			"metadata": map[string]any{"name": issuerSecret, "namespace": f.Namespace},
		}}
		obj.SetAnnotations(notes)
		_, err = to.Create(ctx, obj)
	case err == nil:
		err = edit(ctx, to, obj, write)
	}
	if err != nil {
		return err
	}
	return f.syncIssuer(ctx, to, issuer.PEM())
}

// syncIssuer writes the issuer's certificate into linkerd-config: never its key.
func (f *Facts) syncIssuer(ctx context.Context, to writer, text string) error {
	return f.editConfig(ctx, to, func(values map[string]any) {
		// An error would mean that identity.issuer is no map; then nobody reads it.
		_ = unstructured.SetNestedField(values, text, "identity", "issuer", "tls", "crtPEM")
	})
}

// PresentKey is the key in the issuer's Secret.
func (f *Facts) PresentKey(ctx context.Context, from cluster) (*pki.Authority, error) {
	obj, err := from.Get(ctx, kube.Secrets, f.Namespace, issuerSecret)
	if err != nil {
		return nil, err
	}
	secret, err := into[corev1.Secret](obj)
	if err != nil {
		return nil, err
	}
	key, err := pki.ParseKey(secret.Data[f.names().key])
	if err != nil {
		return nil, fmt.Errorf("reading Secret %s: %w", issuerSecret, err)
	}
	return pki.Pair(f.Issuer, key, "certificate and key in Secret "+issuerSecret)
}
