// Package kubetest is an API server in memory for tests of commands: it keeps
// objects, gives them out, and takes new ones. It knows no rules of Kubernetes
// beyond that; what is not asked for by a command is not there.
package kubetest

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"
)

// Server is the API server. Its methods may be called from any goroutine.
type Server struct {
	// Kubeconfig is the path of a file that leads to the server.
	Kubeconfig string
	t          *testing.T

	mu      sync.Mutex
	objects map[string]unstructured.Unstructured // by path
	kinds   map[string][]metav1.APIResource      // by path of the group and version
	raw     map[string]http.HandlerFunc
	asked   []string
}

// Start starts a server that keeps the objects of a YAML stream. It ends with
// the test.
func Start(t *testing.T, objects string) *Server {
	t.Helper()
	s := &Server{t: t, objects: make(map[string]unstructured.Unstructured), kinds: make(map[string][]metav1.APIResource), raw: make(map[string]http.HandlerFunc)}
	for _, kind := range []string{
		"v1/Namespace", "v1/Node", "v1 Pod", "v1 Service", "v1 ConfigMap", "v1 Secret", "v1 ServiceAccount", "v1 Event",
		"apps/v1 Deployment", "apps/v1 DaemonSet", "apps/v1 StatefulSet", "apps/v1 ReplicaSet", "batch/v1 Job", "batch/v1 CronJob",
		"rbac.authorization.k8s.io/v1 Role", "rbac.authorization.k8s.io/v1 RoleBinding",
		"rbac.authorization.k8s.io/v1/ClusterRole", "rbac.authorization.k8s.io/v1/ClusterRoleBinding",
		"apiextensions.k8s.io/v1/CustomResourceDefinition", "policy/v1 PodDisruptionBudget", "coordination.k8s.io/v1 Lease",
		"admissionregistration.k8s.io/v1/MutatingWebhookConfiguration", "admissionregistration.k8s.io/v1/ValidatingWebhookConfiguration",
		"discovery.k8s.io/v1 EndpointSlice", "networking.k8s.io/v1 NetworkPolicy",
	} {
		gv, name, namespaced := strings.Cut(kind, " ")
		if !namespaced {
			at := strings.LastIndex(kind, "/")
			gv, name = kind[:at], kind[at+1:]
		}
		s.Serve(gv, name, namespaced)
	}
	for text := range strings.SplitSeq(objects, "\n---\n") {
		var obj unstructured.Unstructured
		if strings.TrimSpace(text) == "" {
			continue
		}
		if err := yaml.Unmarshal([]byte(text), &obj.Object); err != nil {
			t.Fatalf("an object for the API server: %v", err)
		}
		s.Put(&obj)
	}
	srv := httptest.NewServer(s)
	t.Cleanup(srv.Close)
	s.Kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	config := fmt.Sprintf(`apiVersion: v1
kind: Config
current-context: test
clusters: [{name: c, cluster: {server: %q}}]
contexts: [{name: test, context: {cluster: c, user: u}}]
users: [{name: u, user: {}}]
`, srv.URL)
	if err := os.WriteFile(s.Kubeconfig, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	return s
}

// Serve makes a kind known.
func (s *Server) Serve(groupVersion, kind string, namespaced bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := root(groupVersion)
	s.kinds[at] = append(s.kinds[at], metav1.APIResource{Name: plural(kind), Kind: kind, Namespaced: namespaced})
}

// Handle answers a path of its own, or takes one over.
func (s *Server) Handle(path string, h http.HandlerFunc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.raw[path] = h
}

// Put keeps an object.
func (s *Server) Put(obj *unstructured.Unstructured) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.objects[s.path(obj)] = *obj.DeepCopy()
}

// Object is a copy of an object by its path, as
// /api/v1/namespaces/linkerd/configmaps/x; nil if there is none.
func (s *Server) Object(path string) *unstructured.Unstructured {
	s.mu.Lock()
	defer s.mu.Unlock()
	obj, ok := s.objects[path]
	if !ok {
		return nil
	}
	return obj.DeepCopy()
}

// Asked are the requests so far: method and path.
func (s *Server) Asked() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.asked)
}

// ServeHTTP answers a request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.asked = append(s.asked, r.Method+" "+r.URL.Path)
	handle, ok := s.raw[r.URL.Path]
	s.mu.Unlock()
	if ok {
		handle(w, r)
		return
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, 16<<20))
	if err != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if list, ok := s.kinds[r.URL.Path]; ok {
		reply(w, 200, metav1.APIResourceList{APIResources: list})
		return
	}
	dry := r.URL.Query().Get("dryRun") != ""
	old, there := s.objects[r.URL.Path]
	var sent unstructured.Unstructured
	if len(body) > 0 {
		if err := yaml.Unmarshal(body, &sent.Object); err != nil {
			fail(w, 400, metav1.StatusReasonBadRequest, err.Error())
			return
		}
	}
	switch {
	case r.Method == http.MethodPost:
		if _, there := s.objects[s.path(&sent)]; there {
			fail(w, 409, metav1.StatusReasonAlreadyExists, sent.GetName()+" already exists")
			return
		}
		s.keep(&sent, dry)
		reply(w, 201, sent.Object)
	case r.Method == http.MethodPatch && r.Header.Get("Content-Type") == "application/apply-patch+yaml":
		s.keep(&sent, dry)
		reply(w, 200, sent.Object)
	case r.Method == http.MethodGet && s.isList(r.URL.Path):
		s.list(w, r)
	case !there:
		fail(w, 404, metav1.StatusReasonNotFound, r.URL.Path+" not found")
	case r.Method == http.MethodGet:
		reply(w, 200, old.Object)
	case r.Method == http.MethodPut:
		s.keep(&sent, dry)
		reply(w, 200, sent.Object)
	case r.Method == http.MethodPatch: // a merge
		merge(old.Object, sent.Object)
		s.keep(&old, dry)
		reply(w, 200, old.Object)
	case r.Method == http.MethodDelete:
		if !dry {
			delete(s.objects, r.URL.Path)
		}
		reply(w, 200, metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusSuccess})
	default:
		fail(w, 405, metav1.StatusReasonMethodNotAllowed, r.Method)
	}
}

func (s *Server) keep(obj *unstructured.Unstructured, dry bool) {
	if !dry {
		s.objects[s.path(obj)] = *obj.DeepCopy()
	}
}

// isList says whether a path ends in the name of a resource.
func (s *Server) isList(path string) bool {
	for at, list := range s.kinds {
		for _, r := range list {
			if strings.HasPrefix(path, at+"/") && strings.HasSuffix(path, "/"+r.Name) {
				_, object := s.objects[path]
				return !object
			}
		}
	}
	return false
}

func (s *Server) list(w http.ResponseWriter, r *http.Request) {
	selector, err := labels.Parse(r.URL.Query().Get("labelSelector"))
	if err != nil {
		fail(w, 400, metav1.StatusReasonBadRequest, err.Error())
		return
	}
	parent, resource := filepath.Split(r.URL.Path)
	var paths []string
	for path, obj := range s.objects {
		dir, _ := filepath.Split(path)
		inside := dir == r.URL.Path+"/" ||
			!strings.Contains(parent, "/namespaces/") && strings.HasPrefix(dir, parent+"namespaces/") && strings.HasSuffix(dir, "/"+resource+"/")
		if inside && selector.Matches(labels.Set(obj.GetLabels())) {
			paths = append(paths, path)
		}
	}
	slices.Sort(paths)
	items := make([]any, len(paths))
	for i, path := range paths {
		items[i] = s.objects[path].Object
	}
	reply(w, 200, map[string]any{"kind": "List", "apiVersion": "v1", "items": items})
}

// path is where an object is kept.
func (s *Server) path(obj *unstructured.Unstructured) string {
	at := root(obj.GetAPIVersion())
	for _, r := range s.kinds[at] {
		if r.Kind != obj.GetKind() {
			continue
		}
		if r.Namespaced {
			ns := obj.GetNamespace()
			if ns == "" {
				ns = metav1.NamespaceDefault
			}
			at += "/namespaces/" + ns
		}
		return at + "/" + r.Name + "/" + obj.GetName()
	}
	s.t.Errorf("the API server does not know the kind %s of %s", obj.GetKind(), obj.GetAPIVersion())
	return at
}

func root(groupVersion string) string {
	if strings.Contains(groupVersion, "/") {
		return "/apis/" + groupVersion
	}
	return "/api/" + groupVersion
}

func plural(kind string) string {
	kind = strings.ToLower(kind)
	if stem, ok := strings.CutSuffix(kind, "y"); ok {
		return stem + "ies"
	}
	return kind + "s"
}

// merge lays a JSON merge patch over an object.
func merge(into, patch map[string]any) {
	for key, value := range patch {
		below, isObject := value.(map[string]any)
		have, had := into[key].(map[string]any)
		switch {
		case value == nil:
			delete(into, key)
		case isObject && had:
			merge(have, below)
		default:
			into[key] = value
		}
	}
}

func reply(w http.ResponseWriter, code int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(body)
}

func fail(w http.ResponseWriter, code int, reason metav1.StatusReason, message string) {
	reply(w, code, metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure,
		Code: int32(code), Reason: reason, Message: message,
	})
}
