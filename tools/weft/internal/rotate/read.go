package rotate

import (
	"context"
	"crypto/x509"
	"fmt"
	"net"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/weftmesh/weft/services/kit/say"
	"github.com/weftmesh/weft/tools/weft/internal/kube"
	"github.com/weftmesh/weft/tools/weft/internal/pki"
)

// The objects that a rotation is about, as the chart and Linkerd's name them.
const (
	rootsMap     = "linkerd-identity-trust-roots"
	rootsKey     = "ca-bundle.crt"
	issuerSecret = "linkerd-identity-issuer"
	stagedSecret = "linkerd-identity-issuer-next"
	configMap    = "linkerd-config"
	configKey    = "values"
	externalKind = "kubernetes.io/tls"
)

// Where a rotation stands, as annotations: on the ConfigMap of the bundle, and
// (the last) on the issuer's Secret. Times are RFC 3339.
const (
	noteNew     = "identity.weftmesh.io/new-trust-anchor"
	noteOld     = "identity.weftmesh.io/old-trust-anchors"
	noteAdded   = "identity.weftmesh.io/added-trust-anchor"
	noteAddedAt = "identity.weftmesh.io/trust-anchor-added-at"
	noteDropAt  = "identity.weftmesh.io/trust-anchor-dropped-at"
	noteIssued  = "identity.weftmesh.io/issuer-replaced-at"
)

// cluster is what is asked of Kubernetes; *kube.Client has it.
type cluster interface {
	Get(ctx context.Context, gvr schema.GroupVersionResource, ns, name string) (*unstructured.Unstructured, error)
	List(ctx context.Context, gvr schema.GroupVersionResource, ns, selector string) ([]unstructured.Unstructured, error)
	Dial(ctx context.Context, ns, pod string, port int) (net.Conn, error)
}

// settings is the part of linkerd-config that matters here.
type settings struct {
	ClusterDomain       string `json:"clusterDomain"`
	IdentityTrustDomain string `json:"identityTrustDomain"`
	Anchors             string `json:"identityTrustAnchorsPEM"`
	Identity            struct {
		ExternalCA bool `json:"externalCA"`
		Issuer     struct {
			Scheme string `json:"scheme"`
		} `json:"issuer"`
	} `json:"identity"`
}

// trustDomain is what identities end in.
func (s settings) trustDomain() string {
	switch {
	case s.IdentityTrustDomain != "":
		return s.IdentityTrustDomain
	case s.ClusterDomain != "":
		return s.ClusterDomain
	}
	return "cluster.local"
}

// Read finds out where things stand. With probe it also asks each live proxy
// for its certificate, which takes a while; without, no chain is known.
func Read(ctx context.Context, from cluster, ns string, at time.Time, probe bool) (*Facts, settings, error) {
	f := &Facts{Now: at, Namespace: ns}
	cfg, err := readConfig(ctx, from, ns)
	if err != nil {
		return nil, cfg, err
	}
	f.ExternalCA, f.ExternalIssuer = cfg.Identity.ExternalCA, cfg.Identity.Issuer.Scheme == externalKind
	f.Config, _ = pki.Bundle(cfg.Anchors)
	if err := f.readBundle(ctx, from); err != nil {
		return nil, cfg, err
	}
	if err := f.readIssuer(ctx, from); err != nil {
		return nil, cfg, err
	}
	if f.Proxies, err = readProxies(ctx, from, "", ""); err != nil {
		return nil, cfg, err
	}
	if probe {
		Probe(ctx, from, f.Proxies)
	}
	return f, cfg, nil
}

// look reads what Next needs. Proxies are only asked for their certificates
// when that is what the next step hangs on.
func look(ctx context.Context, from cluster, ns string) (*Facts, settings, error) {
	f, cfg, err := Read(ctx, from, ns, time.Now(), false)
	if err != nil {
		return nil, cfg, err
	}
	if Next(f).Act == AwaitProxies {
		Probe(ctx, from, f.Proxies)
		f.Now = time.Now()
	}
	return f, cfg, nil
}

// into makes a typed object of one from the cluster.
func into[T any](obj *unstructured.Unstructured) (*T, error) {
	out := new(T)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(obj.Object, out); err != nil {
		return nil, fmt.Errorf("reading %s %s: %w", obj.GetKind(), obj.GetName(), err)
	}
	return out, nil
}

func readConfig(ctx context.Context, from cluster, ns string) (settings, error) {
	var s settings
	obj, err := from.Get(ctx, kube.ConfigMaps, ns, configMap)
	if apierrors.IsNotFound(err) {
		return s, &say.Problem{
			What: "there is no mesh in namespace " + ns, Why: "its ConfigMap " + configMap + " does not exist",
			Next: "name the control plane's namespace with --linkerd-namespace", Err: err,
		}
	}
	if err != nil {
		return s, err
	}
	text, _, _ := unstructured.NestedString(obj.Object, "data", configKey)
	if err := yaml.Unmarshal([]byte(text), &s); err != nil {
		return s, fmt.Errorf("reading ConfigMap %s/%s: %w", ns, configMap, err)
	}
	return s, nil
}

func (f *Facts) readBundle(ctx context.Context, from cluster) error {
	obj, err := from.Get(ctx, kube.ConfigMaps, f.Namespace, rootsMap)
	if apierrors.IsNotFound(err) {
		return &say.Problem{
			What: "the mesh has no trust anchors", Why: "ConfigMap " + f.Namespace + "/" + rootsMap + " does not exist",
			Next: "with identity.externalCA it must be made by you; else repair the installation (`weft check`)", Err: err,
		}
	}
	if err != nil {
		return err
	}
	text, _, _ := unstructured.NestedString(obj.Object, "data", rootsKey)
	f.Bundle, f.Damaged = pki.Bundle(text)
	notes := obj.GetAnnotations()
	f.New, f.Added = notes[noteNew], notes[noteAdded]
	if old := notes[noteOld]; old != "" {
		f.Old = strings.Split(old, ",")
	}
	f.AddedAt, f.DroppedAt = when(notes[noteAddedAt]), when(notes[noteDropAt])
	return nil
}

// when is zero for what is no time: then we don't know when, and say so by it.
func when(text string) time.Time {
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return time.Time{}
	}
	return t
}

func (f *Facts) readIssuer(ctx context.Context, from cluster) error {
	obj, err := from.Get(ctx, kube.Secrets, f.Namespace, issuerSecret)
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	if err == nil { // without an issuer a new one can be put in place all the same
		secret, err := into[corev1.Secret](obj)
		if err != nil {
			return err
		}
		f.Issuer, _ = pki.Bundle(string(secret.Data[f.names().crt]))
		f.IssuerChanged = when(secret.Annotations[noteIssued])
	}
	f.Staged, _, err = staged(ctx, from, f.Namespace)
	return err
}

// files are the keys of a Secret.
type files struct{ crt, key string }

func (f *Facts) names() files {
	if f.ExternalIssuer {
		return files{corev1.TLSCertKey, corev1.TLSPrivateKeyKey}
	}
	return files{"crt.pem", "key.pem"}
}

// staged reads the issuer that waits for its anchor, if there is one.
func staged(ctx context.Context, from cluster, ns string) ([]*x509.Certificate, *corev1.Secret, error) {
	obj, err := from.Get(ctx, kube.Secrets, ns, stagedSecret)
	if apierrors.IsNotFound(err) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	secret, err := into[corev1.Secret](obj)
	if err != nil {
		return nil, nil, err
	}
	chain, _ := pki.Bundle(string(secret.Data["crt.pem"]))
	return chain, secret, nil
}

// readProxies lists the live proxies of a namespace (all if empty).
func readProxies(ctx context.Context, from cluster, ns, selector string) ([]Proxy, error) {
	pods, err := from.List(ctx, kube.Pods, ns, selector)
	if err != nil {
		return nil, err
	}
	owners := make(map[string]string)
	var out []Proxy
	for i := range pods {
		pod, err := into[corev1.Pod](&pods[i])
		if err != nil {
			return nil, err
		}
		p, ok := proxyOf(pod)
		if !ok {
			continue
		}
		if p.Owner, err = owner(ctx, from, pod, owners); err != nil {
			return nil, err
		}
		out = append(out, p)
	}
	return byName(out), nil
}

// owner is what a restart of a pod is asked of, as kind/name; empty if nothing
// makes it anew.
func owner(ctx context.Context, from cluster, pod *corev1.Pod, known map[string]string) (string, error) {
	for _, ref := range pod.OwnerReferences {
		if ref.Controller == nil || !*ref.Controller {
			continue
		}
		switch ref.Kind {
		case "StatefulSet", "DaemonSet":
			return strings.ToLower(ref.Kind) + "/" + ref.Name, nil
		case "ReplicaSet":
			key := pod.Namespace + "/" + ref.Name
			if name, ok := known[key]; ok {
				return name, nil
			}
			set, err := from.Get(ctx, kube.ReplicaSets, pod.Namespace, ref.Name)
			if err != nil && !apierrors.IsNotFound(err) {
				return "", err
			}
			name := ""
			if err == nil {
				for _, up := range set.GetOwnerReferences() {
					if up.Kind == "Deployment" {
						name = "deployment/" + up.Name
					}
				}
			}
			known[key] = name
			return name, nil
		}
	}
	return "", nil
}
