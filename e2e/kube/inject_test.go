package kube

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/weftmesh/weft/e2e/internal/caseset"
	"github.com/weftmesh/weft/e2e/internal/pki"
	"github.com/weftmesh/weft/e2e/internal/proc"
)

const (
	webhooks = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
	// hookLabel on a namespace names the webhook that its objects go through.
	hookLabel   = "weft-case-hook"
	meshVersion = "case-1"
)

// collections of the kinds that cases create, by kind.
var collections = map[string]string{
	"Pod": pods, "Service": services, "ConfigMap": "/api/v1/namespaces/%s/configmaps", "ReplicaSet": replicas,
	"Deployment": "/apis/apps/v1/namespaces/%s/deployments", "StatefulSet": "/apis/apps/v1/namespaces/%s/statefulsets",
	"DaemonSet": "/apis/apps/v1/namespaces/%s/daemonsets", "Job": "/apis/batch/v1/namespaces/%s/jobs",
	"CronJob":               "/apis/batch/v1/namespaces/%s/cronjobs",
	"ReplicationController": "/api/v1/namespaces/%s/replicationcontrollers",
}

// TestInjectorCases creates the objects of the injector's cases, dry, on a real
// API server whose webhook is a real injector: what the server defaults, orders
// and refuses is real. WEFT_CASES names the directory of case files; without it
// the small set of package cases is run. What cases say of events is not looked
// at: an object that was created dry has none.
func TestInjectorCases(t *testing.T) {
	dir := os.Getenv("WEFT_CASES")
	if dir == "" {
		dir = filepath.Join("..", "cases", "testdata")
	}
	cases, err := caseset.LoadInjections(dir)
	if err != nil {
		t.Fatal(err)
	}
	s := open(t)
	m := s.mesh(t)
	m.watcher()
	m.live("a leader")
	hooks := map[string]*hook{}
	ran := 0
	for i, c := range cases {
		if c.Request.K8s != "create" {
			continue
		}
		ran++
		t.Run(c.ID, func(t *testing.T) {
			key, err := json.Marshal(c.Request.Values)
			if err != nil {
				t.Fatal(err)
			}
			h := hooks[string(key)]
			if h == nil {
				h = m.hook(fmt.Sprintf("%s-%d", m.name, len(hooks)), c.Request.Values)
				hooks[string(key)] = h
			}
			if why := h.judge(t, c, fmt.Sprintf("case-%d", i)); why != "" {
				t.Errorf("%s: %s (%s)", c.Area, why, c.Note)
			}
		})
	}
	t.Logf("%d of %d cases are about objects", ran, len(cases))
}

// hook is an injector that the API server asks.
type hook struct {
	*mesh
	name    string
	process *proc.Process
	anchors string // hex of their hash
}

var listening = regexp.MustCompile(`msg="webhook listening".* addr=[0-9.]+:([0-9]+)`)

// hook starts an injector and waits until the API server asks it.
func (m *mesh) hook(name string, overrides map[string]any) *hook {
	m.t.Helper()
	authority, err := pki.NewAuthority("webhook")
	if err != nil {
		m.t.Fatal(err)
	}
	root, err := authority.Pair()
	if err != nil {
		m.t.Fatal(err)
	}
	leaf, err := authority.Leaf(pki.Who{User: "webhook", Names: []string{"127.0.0.1"}})
	if err != nil {
		m.t.Fatal(err)
	}
	settings := object{"linkerdVersion": meshVersion}
	maps.Copy(settings, overrides)
	values, err := json.Marshal(settings) // which is YAML, too
	if err != nil {
		m.t.Fatal(err)
	}
	dir := m.t.TempDir()
	for file, content := range map[string][]byte{"values": values, "tls.crt": leaf.Cert, "tls.key": leaf.Key, "ca.crt": root.Cert} {
		m.write(filepath.Join(dir, file), string(content))
	}
	sum := sha256.Sum256(root.Cert)
	h := &hook{mesh: m, name: name, anchors: hex.EncodeToString(sum[:])}
	h.process = proc.Service(m.t, "injector", nil, "-bus.servers", m.nats(), "-bus.cluster", m.name, "-listen", "127.0.0.1:0", "-linger", "0s",
		"-config", filepath.Join(dir, "values"), "-cert", filepath.Join(dir, "tls.crt"), "-key", filepath.Join(dir, "tls.key"),
		"-trust-anchors", filepath.Join(dir, "ca.crt"))
	var port string
	m.until("the injector has said where it listens", func() error {
		found := listening.FindStringSubmatch(h.process.Log())
		if found == nil {
			return errors.New("it has not")
		}
		port = found[1]
		return nil
	})
	absent := object{"key": "linkerd.io/control-plane-component", "operator": "DoesNotExist"}
	m.create(m.t, webhooks, named(name, object{"webhooks": []any{object{
		"name": "injector.case.test", "admissionReviewVersions": []string{"v1", "v1beta1"}, "sideEffects": "None",
		"failurePolicy": "Fail", "timeoutSeconds": 30,
		"clientConfig":      object{"url": "https://127.0.0.1:" + port + "/any/path", "caBundle": base64.StdEncoding.EncodeToString(root.Cert)},
		"namespaceSelector": object{"matchLabels": object{hookLabel: name}},
		"objectSelector":    object{"matchExpressions": []any{absent}},
		"rules": []any{object{
			"operations": []string{"CREATE"}, "apiGroups": []string{""}, "apiVersions": []string{"v1"},
			"resources": []string{"pods", "services"}, "scope": "Namespaced",
		}},
	}}}))
	m.t.Cleanup(func() { m.remove(m.t, webhooks+"/"+name) })
	probe := h.namespace(name+"-probe", nil, true)
	m.until("the API server asks the injector", func() error {
		answer, err := m.do(http.MethodPost, in(services, probe)+"?dryRun=All", "application/json",
			[]byte(`{"apiVersion":"v1","kind":"Service","metadata":{"name":"probe"},"spec":{"ports":[{"port":3306}]}}`))
		if err == nil && !bytes.Contains(answer, []byte("opaque-ports")) {
			err = errors.New("a Service is created without its annotation")
		}
		return err
	})
	return h
}

// nats is where the mesh's bus is.
func (m *mesh) nats() string {
	for i, f := range m.flags {
		if f == "-bus.servers" {
			return m.flags[i+1]
		}
	}
	m.t.Fatal("the mesh has no bus")
	return ""
}

// namespace makes one whose objects go through the webhook, or don't.
func (h *hook) namespace(name string, annotations any, asked bool) string {
	h.t.Helper()
	meta := object{"annotations": annotations}
	if asked {
		meta["labels"] = object{hookLabel: h.name}
	}
	h.create(h.t, namespaces, named(name, object{"metadata": meta}))
	return name
}

// judge runs one case; the answer is empty when it passed.
func (h *hook) judge(t *testing.T, c caseset.Injection, unique string) string {
	t.Helper()
	unique = h.name + "-" + unique
	uids := map[string]string{}
	var home string // the case's own name for the namespace
	for _, raw := range c.Given {
		var given object
		decode(t, withUIDs(caseset.Minimal(raw), uids), &given)
		kind := fmt.Sprint(given["kind"])
		meta, _ := given["metadata"].(map[string]any)
		if kind == "Namespace" {
			home = fmt.Sprint(meta["name"])
			h.namespace(unique, meta["annotations"], true)
			h.namespace(unique+"-off", meta["annotations"], false)
			continue
		}
		meta["namespace"] = unique
		got := h.create(t, in(collections[kind], unique), given)
		made, _ := got["metadata"].(map[string]any)
		uids[kind+"/"+fmt.Sprint(meta["name"])] = fmt.Sprint(made["uid"])
	}
	var sent object
	decode(t, withUIDs(c.Request.Object, uids), &sent)
	meta, _ := sent["metadata"].(map[string]any)
	if spec, _ := sent["spec"].(map[string]any); sent["kind"] == "Pod" {
		spec["serviceAccountName"] = "default" // as the plugin for accounts would, which has no controller here
	}
	collection := collections[fmt.Sprint(sent["kind"])]
	dry := func(namespace string) (object, error) {
		meta["namespace"] = namespace
		body, err := json.Marshal(sent)
		if err != nil {
			return nil, err
		}
		answer, err := h.do(http.MethodPost, in(collection, namespace)+"?dryRun=All", "application/json", body)
		if err != nil {
			return nil, err
		}
		var out object
		decode(t, answer, &out)
		meta, _ := out["metadata"].(map[string]any)
		for _, own := range []string{"namespace", "uid", "creationTimestamp", "managedFields", "generation"} {
			delete(meta, own)
		}
		return out, nil
	}
	before, err := dry(unique + "-off")
	if err != nil {
		return "without the webhook: " + err.Error()
	}
	got := caseset.Admitted{Allowed: true, Before: before, After: before}
	after, err := dry(unique)
	switch {
	case err == nil:
		got.After = after
	case is(err, http.StatusForbidden) || is(err, http.StatusInternalServerError) || is(err, http.StatusBadRequest):
		got.Allowed = false
	default:
		return err.Error()
	}
	got.Reasons = h.reasons(t, unique)
	return caseset.JudgeInjection(h.expected(t, c.Expect, home, unique), got)
}

var uidRef = regexp.MustCompile(`"@uid:([A-Za-z]+/[^"]+)"`)

func withUIDs(raw []byte, uids map[string]string) []byte {
	return uidRef.ReplaceAllFunc(raw, func(ref []byte) []byte {
		if uid := uids[string(uidRef.FindSubmatch(ref)[1])]; uid != "" {
			return fmt.Appendf(nil, "%q", uid)
		}
		return []byte(`"11111111-1111-4111-8111-111111111111"`) // an owner that the case never creates
	})
}

// reasons are those of the namespace's only request, as the injector counted it.
func (h *hook) reasons(t *testing.T, namespace string) []string {
	t.Helper()
	page, err := h.process.Get("/metrics")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(page) {
		if strings.HasPrefix(line, "proxy_inject_admission_responses_total{") && strings.Contains(line, `namespace="`+namespace+`"`) {
			_, rest, _ := strings.Cut(line, `skip_reason="`)
			if reasons, _, _ := strings.Cut(rest, `"`); reasons != "" {
				return strings.Split(reasons, ",")
			}
		}
	}
	return nil
}

// expected fills in what differs between runs.
func (h *hook) expected(t *testing.T, want map[string]any, home, namespace string) map[string]any {
	t.Helper()
	body, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	text := strings.NewReplacer(`\u003cversion\u003e`, meshVersion, `\u003csha256 of the trust anchors\u003e`, h.anchors,
		`"linkerd.io/workload-ns":"`+home+`"`, `"linkerd.io/workload-ns":"`+namespace+`"`).Replace(string(body))
	var out map[string]any
	decode(t, []byte(text), &out)
	return out
}
