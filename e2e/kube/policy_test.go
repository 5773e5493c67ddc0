package kube

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/weftmesh/weft/e2e/internal/caseset"
	"github.com/weftmesh/weft/e2e/internal/pki"
	"github.com/weftmesh/weft/e2e/internal/proc"
)

const validating = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"

// TestPolicyCases runs the cases about admission and statuses on a real API
// server that has the chart's definitions and webhooks: what it defaults, prunes
// and refuses is real, and so is who writes a status. Objects whose admission is
// asked are created dry. WEFT_CASES names the directory of case files; without it
// the small set of package cases is run.
func TestPolicyCases(t *testing.T) {
	dir := os.Getenv("WEFT_CASES")
	if dir == "" {
		dir = filepath.Join("..", "cases", "testdata")
	}
	cases, err := caseset.LoadKube(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(cases) == 0 {
		t.Fatalf("no case in %s asks Kubernetes", dir)
	}
	s := open(t)
	s.chartCRDs(t, "--set", "installGatewayAPI=true")
	kinds := s.kinds(t)
	m := s.mesh(t, append(rules(), statusRules()...)...)
	m.watcher()
	m.live("a leader")
	m.validators()
	for i, c := range cases {
		t.Run(c.ID, func(t *testing.T) {
			w := &place{server: s, kinds: kinds, namespace: fmt.Sprintf("%s-case-%d", m.name, i), collections: map[string]string{}}
			var why string
			switch c.Request.K8s {
			case "create":
				// Nothing is left of a dry creation, so all share their namespaces.
				w.namespace, w.shared = m.name+"-dry", true
				why = w.admission(t, c)
			case "status":
				why = w.status(t, c)
			default:
				t.Fatalf("the case asks %q", c.Request.K8s)
			}
			if why != "" {
				t.Errorf("%s: %s (%s)", c.Area, why, c.Note)
			}
		})
	}
}

// statusRules are what the chart lets the watcher do besides.
func statusRules() []any {
	patch := func(group string, resources ...string) any {
		return object{"apiGroups": []string{group}, "resources": resources, "verbs": []string{"patch"}}
	}
	return []any{
		patch("policy.linkerd.io", "httproutes/status", "egressnetworks/status", "httplocalratelimitpolicies/status"),
		patch("gateway.networking.k8s.io", "httproutes/status", "grpcroutes/status", "tlsroutes/status", "tcproutes/status"),
	}
}

// kinds waits until all custom resources are served, and tells their collections'
// names by kind and group.
func (s *server) kinds(t *testing.T) map[string]string {
	t.Helper()
	plurals := map[string]string{"Pod.": "pods", "Service.": "services", "ConfigMap.": "configmaps"}
	proc.Eventually(t, "all definitions are established", func() error {
		answer, err := s.do(http.MethodGet, crds, "", nil)
		if err != nil {
			return err
		}
		var list struct {
			Items []struct {
				Spec struct {
					Group string
					Names struct{ Kind, Plural string }
				}
				Status struct {
					Conditions []struct{ Type, Status string }
				}
			}
		}
		if err := json.Unmarshal(answer, &list); err != nil {
			return err
		}
		for _, d := range list.Items {
			established := false
			for _, c := range d.Status.Conditions {
				established = established || c.Type == "Established" && c.Status == "True"
			}
			if !established {
				return fmt.Errorf("%s.%s is not", d.Spec.Names.Plural, d.Spec.Group)
			}
			plurals[d.Spec.Names.Kind+"."+d.Spec.Group] = d.Spec.Names.Plural
		}
		return nil
	})
	return plurals
}

var validatorPorts = regexp.MustCompile(`msg="webhook listening" .*webhook="([a-z]+) webhook" addr=[0-9.]+:([0-9]+)`)

// validators starts a policy server and makes the API server ask it, with the
// chart's rules.
func (m *mesh) validators() {
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
	dir := m.t.TempDir()
	cert, key := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	m.write(cert, string(leaf.Cert))
	m.write(key, string(leaf.Key))
	policy := proc.Service(m.t, "policy", nil, "-listen", proc.FreePort(m.t), "-bus.servers", m.nats(), "-bus.cluster", m.name,
		"-server-addr", "127.0.0.1:0", "-server-tls-certs", cert, "-server-tls-key", key,
		"-profile-addr", "127.0.0.1:0", "-profile-tls-certs", cert, "-profile-tls-key", key, "-webhook-linger", "0s")
	ports := map[string]string{}
	m.until("the policy server has said where its webhooks listen", func() error {
		for _, found := range validatorPorts.FindAllStringSubmatch(policy.Log(), -1) {
			ports[found[1]] = found[2]
		}
		if len(ports) != 2 {
			return errors.New("it has not")
		}
		return nil
	})
	made := 0
	for _, doc := range chart(m.t, "weft-control-plane", "--namespace", m.name) {
		if !strings.Contains(doc, "\nkind: ValidatingWebhookConfiguration\n") {
			continue
		}
		made++
		answer, err := m.do(http.MethodPost, validating+"?dryRun=All", "application/yaml", []byte(doc))
		if err != nil {
			m.t.Fatal(err)
		}
		var configuration object
		decode(m.t, answer, &configuration)
		meta := configuration["metadata"].(map[string]any)
		name := fmt.Sprint(meta["name"])
		port := ports["policy"]
		if strings.Contains(name, "sp-validator") {
			port = ports["profile"]
		}
		hook := configuration["webhooks"].([]any)[0].(map[string]any)
		hook["clientConfig"] = object{"url": "https://127.0.0.1:" + port + "/", "caBundle": base64.StdEncoding.EncodeToString(root.Cert)}
		hook["failurePolicy"], hook["timeoutSeconds"] = "Fail", 30
		m.create(m.t, validating, object{"metadata": map[string]any{"name": name}, "webhooks": configuration["webhooks"]})
		m.t.Cleanup(func() { m.remove(m.t, validating+"/"+name) })
	}
	if made != 2 {
		m.t.Fatalf("the chart has %d validating webhooks", made)
	}
	for _, probe := range []struct{ collection, body string }{
		{in(servers, "default"), `{"apiVersion":"policy.linkerd.io/v1beta3","kind":"Server","metadata":{"name":"probe"},"spec":{"port":80,"podSelector":{},"accessPolicy":"perhaps"}}`},
		{in(profiles, "default"), `{"apiVersion":"linkerd.io/v1alpha2","kind":"ServiceProfile","metadata":{"name":"probe"},"spec":{"routes":[{"name":"","condition":{}}]}}`},
	} {
		m.until("the API server asks before "+probe.collection, func() error {
			_, err := m.do(http.MethodPost, probe.collection+"?dryRun=All", "application/json", []byte(probe.body))
			if err == nil || !strings.Contains(err.Error(), "denied the request: spec") {
				return fmt.Errorf("nonsense is answered with %w", err)
			}
			return nil
		})
	}
}

// place is where the objects of one case are: namespaces of its own.
type place struct {
	*server
	kinds       map[string]string
	namespace   string
	shared      bool              // by all cases of its kind
	collections map[string]string // of what was created, by Kind.group/namespace/name
}

// own gives a case's namespaces names that no other case has.
func (w *place) own(raw []byte) []byte {
	for _, name := range []string{"grove", "market"} {
		raw = bytes.ReplaceAll(raw, []byte(`"`+name+`"`), []byte(`"`+w.namespace+"-"+name+`"`))
		raw = bytes.ReplaceAll(raw, []byte("/"+name+"/"), []byte("/"+w.namespace+"-"+name+"/"))
	}
	return raw
}

// collection is where objects of a kind are created.
func (w *place) collection(t *testing.T, o object) string {
	t.Helper()
	meta, _ := o["metadata"].(map[string]any)
	kind, version := fmt.Sprint(o["kind"]), fmt.Sprint(o["apiVersion"])
	group, _, found := strings.Cut(version, "/")
	api := "/apis/" + version
	if !found {
		group, api = "", "/api/"+version
	}
	plural := w.kinds[kind+"."+group]
	if plural == "" {
		t.Fatalf("no definition has the kind %s of group %q", kind, group)
	}
	path := fmt.Sprintf("%s/namespaces/%v/%s", api, meta["namespace"], plural)
	name := fmt.Sprintf("/%v/%v", meta["namespace"], meta["name"])
	w.collections[kind+"."+group+name], w.collections[kind+name] = path, path
	return path
}

// given creates what is there before the question.
func (w *place) given(t *testing.T, c caseset.Kube) {
	t.Helper()
	for _, raw := range c.Given {
		var between struct {
			caseset.KubeStep
			Sleep float64 `json:"sleep_s"`
		}
		decode(t, raw, &between)
		switch {
		case between.Sleep > 0:
			w.do1(t, caseset.KubeStep{Step: caseset.Step{Op: "sleep", Second: between.Sleep}})
		case between.Op != "":
			w.do1(t, between.KubeStep)
		default:
			var o object
			decode(t, w.own(raw), &o)
			w.put(t, o)
		}
	}
}

func (w *place) put(t *testing.T, o object) {
	t.Helper()
	meta, ok := o["metadata"].(map[string]any)
	switch {
	case !ok:
		t.Fatalf("%v has no metadata", o)
	case o["kind"] == "Namespace" && w.shared:
		w.ensure(t, namespaces, object{"metadata": meta})
		return
	case o["kind"] == "Namespace":
		w.server.namespace(t, fmt.Sprint(meta["name"]), nil)
		return
	}
	path := w.collection(t, o)
	if spec, _ := o["spec"].(map[string]any); o["kind"] == "Service" && spec["clusterIP"] != "None" {
		delete(spec, "clusterIP") // the server's range is another one
		delete(spec, "clusterIPs")
	}
	status := o["status"]
	delete(o, "status")
	w.create(t, path, o)
	if status != nil {
		w.patch(t, fmt.Sprintf("%s/%v/status", path, meta["name"]), object{"status": status})
	}
}

// admission asks whether an object would be taken.
func (w *place) admission(t *testing.T, c caseset.Kube) string {
	t.Helper()
	w.given(t, c)
	var o object
	decode(t, w.own(c.Request.Object), &o)
	body, err := json.Marshal(o)
	if err != nil {
		return err.Error()
	}
	_, err = w.do(http.MethodPost, w.collection(t, o)+"?dryRun=All", "application/json", body)
	refused := is(err, http.StatusBadRequest) || is(err, http.StatusForbidden) || is(err, http.StatusUnprocessableEntity)
	switch {
	case err != nil && !refused:
		return err.Error()
	case c.Expect.Admitted == nil:
		return "the case does not say whether the object is admitted"
	case *c.Expect.Admitted == refused:
		return fmt.Sprintf("admitted: %v, %v", !refused, err)
	}
	if refused {
		t.Logf("refused: %v", err)
	}
	return ""
}

// status follows what the status of an object becomes.
func (w *place) status(t *testing.T, c caseset.Kube) string {
	t.Helper()
	w.given(t, c)
	ref := string(w.own([]byte(c.Request.Ref)))
	becomes := func(what string, want []map[string]any) {
		t.Helper()
		if len(want) == 0 {
			return
		}
		proc.Eventually(t, what, func() error {
			answer, err := w.do(http.MethodGet, w.path(t, ref), "", nil)
			if err != nil {
				return err
			}
			var got struct{ Status map[string]any }
			if err := json.Unmarshal(answer, &got); err != nil {
				return err
			}
			if why := caseset.JudgeStatus(want[len(want)-1], got.Status); why != "" {
				return errors.New(why)
			}
			return nil
		})
	}
	becomes("the first status of "+ref, c.Expect.Initial)
	for i, step := range c.Request.Then {
		w.do1(t, step)
		if i < len(c.Expect.After) {
			becomes(fmt.Sprintf("the status of %s after step %d", ref, i+1), c.Expect.After[i])
		}
	}
	return ""
}

// path is that of an object which the case created.
func (w *place) path(t *testing.T, ref string) string {
	t.Helper()
	collection := w.collections[ref]
	if collection == "" {
		t.Fatalf("no object is called %s", ref)
	}
	return collection + ref[strings.LastIndexByte(ref, '/'):]
}

// do1 makes one step of a case.
func (w *place) do1(t *testing.T, step caseset.KubeStep) {
	t.Helper()
	ref := string(w.own([]byte(step.Ref)))
	switch step.Op {
	case "sleep": // objects of one second are told apart by their names, of two by their age
		<-time.After(time.Duration(step.Second * float64(time.Second)))
	case "create", "apply":
		var o object
		decode(t, w.own(step.Object), &o)
		meta, _ := o["metadata"].(map[string]any)
		if path := w.collection(t, o) + "/" + fmt.Sprint(meta["name"]); step.Op == "apply" && w.exists(t, path) {
			w.patch(t, path, o)
			return
		}
		w.put(t, o)
	case "patch":
		var merge object
		decode(t, w.own(step.Merge), &merge)
		path := w.path(t, ref)
		if step.Subresource != "" {
			path += "/" + step.Subresource
		}
		w.patch(t, path, merge)
	case "delete":
		w.remove(t, w.path(t, ref))
	default:
		t.Fatalf("unknown step %q", step.Op)
	}
}

func (w *place) exists(t *testing.T, path string) bool {
	t.Helper()
	_, err := w.do(http.MethodGet, path, "", nil)
	if err != nil && !is(err, http.StatusNotFound) {
		t.Fatal(err)
	}
	return err == nil
}
