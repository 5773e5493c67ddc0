package rotate

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"math/big"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/weftmesh/weft/tools/weft/internal/kube"
	"github.com/weftmesh/weft/tools/weft/internal/pki"
)

// world is a cluster with a mesh in it, as far as rotations see it: objects,
// pods that are injected from linkerd-config, an identity service that gets its
// Secret a minute late, proxies that renew hourly. Only Dial is for more
// than one goroutine; all is meant for a bubble of virtual time. After each change and each look it checks
// that any two proxies would trust each other.
type world struct {
	t       testing.TB
	mu      sync.Mutex // proxies are asked several at a time
	objects map[string]*unstructured.Unstructured
	pods    []*simPod
	made    int
	seen    *pki.Authority // the issuer that the identity service has
	next    []late
	failAt  int // the write that fails, counted from 1; 0 is none
	writes  int
	handed  int // checks of pairs
	broken  bool
	order   []string // namespaces of restarts
}

type late struct {
	at     time.Time
	issuer *pki.Authority
}

type simPod struct {
	ns, owner, name string
	fromMap         bool
	trusts          []*x509.Certificate
	started, got    time.Time
	key             *ecdsa.PrivateKey
	chain           []*x509.Certificate
	deaf            bool // answers no probe
}

const (
	kubeletLag = time.Minute
	renewEvery = time.Hour
)

// newWorld is a mesh as `weft install` makes it, with this bundle and issuer.
func newWorld(t testing.TB, bundle []*x509.Certificate, issuer *pki.Authority, scheme string) *world {
	t.Helper()
	w := &world{t: t, objects: make(map[string]*unstructured.Unstructured), seen: issuer}
	text := pki.EncodeBundle(bundle)
	values, err := yaml.Marshal(map[string]any{
		"identityTrustAnchorsPEM": text, "clusterDomain": "cluster.local", "controllerReplicas": 3,
		"identity": map[string]any{"issuer": map[string]any{"scheme": scheme}},
	})
	if err != nil {
		t.Fatal(err)
	}
	w.put("ConfigMap", configMap, map[string]any{configKey: string(values)})
	w.put("ConfigMap", rootsMap, map[string]any{rootsKey: "# made by weft install\n" + text})
	key, err := issuer.KeyPEM()
	if err != nil {
		t.Fatal(err)
	}
	w.put("Secret", issuerSecret, map[string]any{"crt.pem": encode(issuer.PEM()), "key.pem": encode(key)})
	return w
}

func (w *world) put(kind, name string, data map[string]any) {
	w.objects[kind+"/"+name] = &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": kind, "metadata": map[string]any{"name": name, "namespace": "linkerd"}, "data": data,
	}}
}

// deploy starts a pod; control-plane pods read the ConfigMap.
func (w *world) deploy(ns, owner string) *simPod {
	p := &simPod{ns: ns, owner: owner, fromMap: ns == "linkerd"}
	w.pods = append(w.pods, p)
	w.restart(p)
	return p
}

// restart makes a pod anew, as the injector would now.
func (w *world) restart(p *simPod) {
	w.made++
	p.name = fmt.Sprintf("%s-%d", strings.TrimPrefix(p.owner, "deployment/"), w.made)
	p.started = time.Now()
	text := w.data("ConfigMap/" + rootsMap)[rootsKey].(string)
	if !p.fromMap {
		var s settings
		if err := yaml.Unmarshal([]byte(w.data("ConfigMap/" + configMap)[configKey].(string)), &s); err != nil {
			w.t.Fatal(err)
		}
		text = s.Anchors
	}
	p.trusts, _ = pki.Bundle(text)
	p.chain = nil
	w.renew(p)
}

func (w *world) data(object string) map[string]any {
	data, _, err := unstructured.NestedMap(w.objects[object].Object, "data")
	if err != nil {
		w.t.Fatal(err)
	}
	return data
}

// renew gets a certificate, which a proxy takes only if it trusts it itself.
func (w *world) renew(p *simPod) {
	for len(w.next) > 0 && !time.Now().Before(w.next[0].at) {
		w.seen, w.next = w.next[0].issuer, w.next[1:]
	}
	issuer := append([]*x509.Certificate{w.seen.Cert}, w.seen.Chain...)
	if pki.Leads(issuer, w.bundle(), time.Now()) != nil {
		return // the identity service refuses
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		w.t.Fatal(err)
	}
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(int64(w.made)), DNSNames: []string{p.name},
		NotBefore: time.Now().Add(-time.Second), NotAfter: time.Now().Add(24 * time.Hour),
	}, w.seen.Cert, key.Public(), w.seen.Key)
	if err != nil {
		w.t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		w.t.Fatal(err)
	}
	chain := append([]*x509.Certificate{leaf}, issuer...)
	if pki.Leads(chain, p.trusts, time.Now()) == nil {
		p.key, p.chain, p.got = key, chain, time.Now()
	}
}

func (w *world) bundle() []*x509.Certificate {
	all, _ := pki.Bundle(w.data("ConfigMap/" + rootsMap)[rootsKey].(string))
	return all
}

// check is the promise: no moment at which two proxies would not talk.
func (w *world) check() {
	for _, p := range w.pods {
		for _, q := range w.pods {
			w.handed++
			if err := pki.Leads(p.chain, q.trusts, time.Now()); err != nil && !w.broken {
				w.t.Errorf("%s would refuse %s: %v", q.name, p.name, err)
			}
		}
	}
}

func kindOf(gvr schema.GroupVersionResource) string {
	return map[string]string{"configmaps": "ConfigMap", "secrets": "Secret", "replicasets": "ReplicaSet", "deployments": "Deployment"}[gvr.Resource]
}

func (w *world) Get(_ context.Context, gvr schema.GroupVersionResource, _, name string) (*unstructured.Unstructured, error) {
	if gvr == kube.ReplicaSets {
		return &unstructured.Unstructured{Object: map[string]any{"kind": "ReplicaSet", "metadata": map[string]any{
			"name": name, "ownerReferences": []any{map[string]any{"kind": "Deployment", "name": strings.TrimSuffix(name, "-rs"), "apiVersion": "apps/v1", "uid": "u"}},
		}}}, nil
	}
	obj, ok := w.objects[kindOf(gvr)+"/"+name]
	if !ok {
		return nil, apierrors.NewNotFound(gvr.GroupResource(), name)
	}
	return obj.DeepCopy(), nil
}

func (w *world) List(_ context.Context, _ schema.GroupVersionResource, ns, _ string) ([]unstructured.Unstructured, error) {
	var out []unstructured.Unstructured
	for _, p := range w.pods {
		if ns != "" && ns != p.ns {
			continue
		}
		anchors := map[string]any{"name": envAnchors, "value": pki.EncodeBundle(p.trusts)}
		if p.fromMap {
			anchors = map[string]any{"name": envAnchors, "valueFrom": map[string]any{"configMapKeyRef": map[string]any{"name": rootsMap, "key": rootsKey}}}
		}
		meta := map[string]any{"name": p.name, "namespace": p.ns}
		if p.owner != "" {
			meta["ownerReferences"] = []any{map[string]any{
				"kind": "ReplicaSet", "name": strings.TrimPrefix(p.owner, "deployment/") + "-rs", "controller": true, "apiVersion": "apps/v1", "uid": "u",
			}}
		}
		out = append(out, unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "Pod", "metadata": meta,
			"spec": map[string]any{"containers": []any{
				map[string]any{"name": "app"},
				map[string]any{"name": proxyName, "env": []any{anchors}, "ports": []any{map[string]any{"name": adminPortName, "containerPort": int64(4191)}}},
			}},
			"status": map[string]any{"phase": "Running", "containerStatuses": []any{map[string]any{
				"name": proxyName, "state": map[string]any{"running": map[string]any{"startedAt": p.started.UTC().Format(time.RFC3339)}},
			}}},
		}})
	}
	return out, nil
}

// Dial answers a probe with what the proxy has.
func (w *world) Dial(_ context.Context, ns, pod string, port int) (net.Conn, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range w.pods {
		if p.ns != ns || p.name != pod {
			continue
		}
		if time.Since(p.got) >= renewEvery {
			w.renew(p)
		}
		if p.deaf || p.chain == nil || port != adminPort {
			return nil, errors.New("connection refused")
		}
		near, far := net.Pipe()
		cert := tls.Certificate{PrivateKey: p.key}
		for _, c := range p.chain {
			cert.Certificate = append(cert.Certificate, c.Raw)
		}
		go func() {
			conn := tls.Server(far, &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{cert}})
			_ = conn.HandshakeContext(context.WithoutCancel(w.t.Context())) // the other side closes
			_ = far.Close()
		}()
		return near, nil
	}
	return nil, errors.New("no such pod")
}

// fails counts a write; a failing one changes nothing, as when the command is
// killed before it.
func (w *world) fails() error {
	w.writes++
	if w.writes == w.failAt {
		return errors.New("killed here")
	}
	return nil
}

func (w *world) store(obj *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	if err := w.fails(); err != nil {
		return nil, err
	}
	key := obj.GetKind() + "/" + obj.GetName()
	w.objects[key] = obj.DeepCopy()
	if key == "Secret/"+issuerSecret {
		crt, _ := base64.StdEncoding.DecodeString(w.data(key)["crt.pem"].(string))
		raw, _ := base64.StdEncoding.DecodeString(w.data(key)["key.pem"].(string))
		chain, _ := pki.Bundle(string(crt))
		private, err := pki.ParseKey(raw)
		if err != nil {
			w.t.Fatal(err)
		}
		issuer, err := pki.Pair(chain, private, "what was written")
		if err != nil {
			w.t.Fatal(err)
		}
		w.next = append(w.next, late{time.Now().Add(kubeletLag), issuer})
	}
	w.check()
	return obj, nil
}

func (w *world) Create(_ context.Context, obj *unstructured.Unstructured, _ ...kube.Option) (*unstructured.Unstructured, error) {
	if _, ok := w.objects[obj.GetKind()+"/"+obj.GetName()]; ok {
		return nil, apierrors.NewAlreadyExists(schema.GroupResource{}, obj.GetName())
	}
	return w.store(obj)
}

func (w *world) Update(_ context.Context, obj *unstructured.Unstructured, _ ...kube.Option) (*unstructured.Unstructured, error) {
	return w.store(obj)
}

func (w *world) Delete(_ context.Context, gvr schema.GroupVersionResource, _, name string, _ ...kube.Option) error {
	if err := w.fails(); err != nil {
		return err
	}
	key := kindOf(gvr) + "/" + name
	if _, ok := w.objects[key]; !ok {
		return apierrors.NewNotFound(gvr.GroupResource(), name)
	}
	delete(w.objects, key)
	return nil
}

// Patch is a restart: the rollout takes as long as it takes to the next probe.
func (w *world) Patch(_ context.Context, _ schema.GroupVersionResource, ns, name string, _ types.PatchType, patch []byte, _ ...kube.Option) (*unstructured.Unstructured, error) {
	if err := w.fails(); err != nil {
		return nil, err
	}
	if !strings.Contains(string(patch), "kubectl.kubernetes.io/restartedAt") {
		w.t.Errorf("unexpected patch %s", patch)
	}
	for _, p := range w.pods {
		if p.ns == ns && p.owner == "deployment/"+name {
			w.restart(p)
		}
	}
	w.order = append(w.order, ns)
	w.check()
	return nil, nil
}
