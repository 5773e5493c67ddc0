package check

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/weftmesh/weft/tools/weft/internal/kube"
	"github.com/weftmesh/weft/tools/weft/internal/kube/kubetest"
)

// cluster is a cluster of objects that a script made, and pages that pods serve.
type cluster struct {
	objects []*unstructured.Unstructured
	pages   map[string]string // by "pod:port/path"
	denied  map[string]bool   // resources that we may not touch
	failing map[string]error  // resources that cannot be listed or read
}

func gvrOf(obj *unstructured.Unstructured) schema.GroupVersionResource {
	plural, _ := meta.UnsafeGuessKindToResource(obj.GroupVersionKind())
	return plural
}

func (c *cluster) find(gvr schema.GroupVersionResource, ns, name string) int {
	return slices.IndexFunc(c.objects, func(o *unstructured.Unstructured) bool {
		return gvrOf(o) == gvr && o.GetNamespace() == ns && o.GetName() == name
	})
}

func (c *cluster) Get(_ context.Context, gvr schema.GroupVersionResource, ns, name string) (*unstructured.Unstructured, error) {
	if err := c.failing[gvr.Resource]; err != nil {
		return nil, err
	}
	i := c.find(gvr, ns, name)
	if i < 0 {
		return nil, fmt.Errorf("reading: %w", apierrors.NewNotFound(gvr.GroupResource(), name))
	}
	return c.objects[i], nil
}

func (c *cluster) List(_ context.Context, gvr schema.GroupVersionResource, ns, selector string) ([]unstructured.Unstructured, error) {
	if err := c.failing[gvr.Resource]; err != nil {
		return nil, err
	}
	want, err := labels.Parse(selector)
	if err != nil {
		return nil, err
	}
	var all []unstructured.Unstructured
	for _, o := range c.objects {
		if gvrOf(o) == gvr && (ns == "" || o.GetNamespace() == ns) && want.Matches(labels.Set(o.GetLabels())) {
			all = append(all, *o)
		}
	}
	return all, nil
}

// Create answers reviews of rights, and judges dry runs by the same rights.
func (c *cluster) Create(_ context.Context, obj *unstructured.Unstructured, options ...kube.Option) (*unstructured.Unstructured, error) {
	if obj.GetKind() != "SelfSubjectAccessReview" {
		if len(options) == 0 {
			return nil, errors.New("a check created something")
		}
		if gvr := gvrOf(obj); c.denied[gvr.Resource] {
			return nil, apierrors.NewForbidden(gvr.GroupResource(), obj.GetName(), errors.New("no such right"))
		}
		return obj, nil
	}
	resource, _, _ := unstructured.NestedString(obj.Object, "spec", "resourceAttributes", "resource")
	out := obj.DeepCopy()
	err := unstructured.SetNestedMap(out.Object, map[string]any{"allowed": !c.denied[resource]}, "status")
	return out, err
}

func (c *cluster) Raw(_ context.Context, path string) ([]byte, error) {
	if page, ok := c.pages[path]; ok {
		return []byte(page), nil
	}
	return nil, fmt.Errorf("asking for %s: nobody answers", path)
}

func (c *cluster) Dial(_ context.Context, _, pod string, port int) (net.Conn, error) {
	near, far := net.Pipe()
	at := fmt.Sprintf("%s:%d", pod, port)
	if !slices.ContainsFunc(slices.Collect(maps.Keys(c.pages)), func(k string) bool { return strings.HasPrefix(k, at+"/") }) {
		return nil, fmt.Errorf("forwarding to port %d of pod %s: nothing listens there", port, pod)
	}
	srv := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		page, ok := c.pages[at+r.URL.Path]
		if !ok {
			http.NotFound(w, r)
			return
		}
		if strings.HasPrefix(page, "not ready") {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		_, _ = w.Write([]byte(page))
	})}
	go func() { _ = srv.Serve(kubetest.Once(far)) }()
	return near, nil
}

// add reads objects from YAML documents.
func (c *cluster) add(t *testing.T, docs string) {
	t.Helper()
	for doc := range strings.SplitSeq(docs, "\n---\n") {
		if strings.TrimSpace(doc) == "" {
			continue
		}
		obj := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(doc), &obj.Object); err != nil {
			t.Fatalf("%s: %v", doc, err)
		}
		if i := c.find(gvrOf(obj), obj.GetNamespace(), obj.GetName()); i >= 0 {
			c.objects[i] = obj
			continue
		}
		c.objects = append(c.objects, obj)
	}
}

// issued is a certificate and its key in PEM, and who may sign with it.
type issued struct {
	cert, key string
	parsed    *x509.Certificate
	private   *ecdsa.PrivateKey
}

// today is the day of the tests.
var today = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

var serial int64

// issue makes a certificate that ends after days. by nil signs itself.
func issue(t *testing.T, name string, by *issued, days int, hosts ...string) *issued {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	serial++
	template := &x509.Certificate{
		SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: name}, DNSNames: hosts,
		NotBefore: today.Add(-time.Hour), NotAfter: today.Add(time.Duration(days) * 24 * time.Hour),
		IsCA: len(hosts) == 0, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	parent, signer := template, key
	if by != nil {
		parent, signer = by.parsed, by.private
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return &issued{
		cert: string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})),
		key:  string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: encoded})), parsed: parsed, private: key,
	}
}

func b64(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }

func secret(name string, data ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "apiVersion: v1\nkind: Secret\nmetadata: {name: %s, namespace: linkerd}\ndata:\n", name)
	for i := 0; i < len(data); i += 2 {
		fmt.Fprintf(&b, "  %s: %s\n", data[i], b64(data[i+1]))
	}
	return b.String() + "---\n"
}
