package robust

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

type object = map[string]any

// api is as much of a Kubernetes API server as watchers need: lists, watches
// with a bounded past, and leases that are written over the version that was read.
type api struct {
	t      *testing.T
	server *httptest.Server
	// lease is how long a lease lasts in truth, whatever its holder asks for: a
	// holder that is paused for longer finds another one writing beside it.
	lease time.Duration

	mu      sync.Mutex
	version int
	kinds   map[string]map[string]object // by path of the list, then namespace/name
	past    []change
	oldest  int // watches from before are gone
	changed chan struct{}
	down    bool
	leases  map[string]*coordinationv1.Lease
	watches map[string]int // begun, by path
}

type change struct {
	version int
	path    string
	what    string // ADDED, MODIFIED, DELETED
	obj     object
}

// served are the custom resources that discovery tells of.
var served = map[string][]string{
	"policy.linkerd.io/v1beta3":  {"servers"},
	"policy.linkerd.io/v1alpha1": {"meshtlsauthentications", "authorizationpolicies"},
}

func newAPI(t *testing.T, lease time.Duration) *api {
	t.Helper()
	a := &api{
		t: t, lease: lease, version: 1, kinds: map[string]map[string]object{}, changed: make(chan struct{}),
		leases: map[string]*coordinationv1.Lease{}, watches: map[string]int{},
	}
	a.server = httptest.NewServer(a)
	t.Cleanup(func() {
		a.server.CloseClientConnections()
		a.server.Close()
	})
	return a
}

// kubeconfig writes a file that leads here.
func (a *api) kubeconfig() string {
	a.t.Helper()
	file := filepath.Join(a.t.TempDir(), "kubeconfig")
	text := `{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c, user: u}}], users: [{name: u, user: {}}],
  clusters: [{name: c, cluster: {server: "` + a.server.URL + `"}}]}`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		a.t.Fatal(err)
	}
	return file
}

// put creates or replaces an object of a list such as /api/v1/pods.
func (a *api) put(path, namespace, name string, obj object) {
	a.putMany(path, namespace, map[string]object{name: obj})
}

// putMany creates or replaces objects by their names, all at once.
func (a *api) putMany(path, namespace string, objects map[string]object) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(objects)) {
		a.set(path, namespace, name, objects[name])
	}
	a.wake()
}

// set is put without telling anybody yet. mu is held.
func (a *api) set(path, namespace, name string, obj object) {
	meta, _ := obj["metadata"].(object)
	if meta == nil {
		meta = object{}
	}
	meta = maps.Clone(meta)
	a.version++
	maps.Copy(meta, object{"namespace": namespace, "name": name, "uid": path + namespace + name, "resourceVersion": strconv.Itoa(a.version), "creationTimestamp": "2026-01-01T00:00:00Z"})
	if namespace == "" {
		delete(meta, "namespace")
	}
	obj = maps.Clone(obj)
	obj["metadata"] = meta
	what := "ADDED"
	if a.kinds[path] == nil {
		a.kinds[path] = map[string]object{}
	}
	key := namespace + "/" + name
	if _, there := a.kinds[path][key]; there {
		what = "MODIFIED"
	}
	a.kinds[path][key] = obj
	a.past = append(a.past, change{a.version, path, what, obj})
}

func (a *api) remove(path, namespace, name string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	key := namespace + "/" + name
	obj := a.kinds[path][key]
	if obj == nil {
		return
	}
	delete(a.kinds[path], key)
	a.version++
	gone := maps.Clone(obj)
	meta := maps.Clone(obj["metadata"].(object))
	meta["resourceVersion"] = strconv.Itoa(a.version)
	gone["metadata"] = meta
	a.past = append(a.past, change{a.version, path, "DELETED", gone})
	a.wake()
}

const longestPast = 2000

// wake bounds the past and wakes the watches. mu is held.
func (a *api) wake() {
	if n := len(a.past) - longestPast; n > 0 {
		a.oldest = a.past[n-1].version
		a.past = slices.Clone(a.past[n:])
	}
	close(a.changed)
	a.changed = make(chan struct{})
}

// compact forgets the past and ends the connections, so that each watch comes
// back and finds itself gone.
func (a *api) compact() {
	a.mu.Lock()
	a.past, a.oldest = nil, a.version
	a.mu.Unlock()
	a.server.CloseClientConnections()
}

// setDown makes the server refuse everything, or serve again.
func (a *api) setDown(down bool) {
	a.mu.Lock()
	a.down = down
	a.mu.Unlock()
	if down {
		a.server.CloseClientConnections()
	}
}

func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	down := a.down
	a.mu.Unlock()
	path := r.URL.Path
	switch resources, custom := served[strings.TrimPrefix(path, "/apis/")]; {
	case down:
		refuse(w, http.StatusServiceUnavailable, "ServiceUnavailable")
	case custom:
		var list []any
		for _, name := range resources {
			list = append(list, object{"name": name, "namespaced": true, "verbs": []string{"list", "watch"}})
		}
		answer(w, object{"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": strings.TrimPrefix(path, "/apis/"), "resources": list})
	case strings.Contains(path, "/leases"):
		a.serveLease(w, r)
	case r.Method != http.MethodGet: // an event, which nobody reads
		body, _ := io.ReadAll(io.LimitReader(r.Body, 1<<20))
		w.Header().Set("Content-Type", r.Header.Get("Content-Type"))
		w.WriteHeader(http.StatusCreated)
		_, _ = w.Write(body)
	case strings.Count(path, "/") < 3 || strings.HasPrefix(path, "/apis/") && strings.Count(path, "/") < 4:
		refuse(w, http.StatusNotFound, "NotFound")
	case r.URL.Query().Get("watch") != "":
		a.serveWatch(w, r)
	default:
		a.serveList(w, r)
	}
}

func answer(w http.ResponseWriter, obj any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(obj)
}

func refuse(w http.ResponseWriter, code int, reason string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(failure(code, reason))
}

func failure(code int, reason string) object {
	return object{"kind": "Status", "apiVersion": "v1", "metadata": object{}, "status": "Failure", "code": code, "reason": reason, "message": reason}
}

// partial cuts an object down to its metadata if that is what was asked for.
func partial(r *http.Request, obj object) object {
	if !strings.Contains(r.Header.Get("Accept"), "as=PartialObjectMetadata") {
		return obj
	}
	return object{"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": obj["metadata"]}
}

func (a *api) serveList(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	items := []any{}
	for _, key := range slices.Sorted(maps.Keys(a.kinds[r.URL.Path])) {
		items = append(items, partial(r, a.kinds[r.URL.Path][key]))
	}
	version := strconv.Itoa(a.version)
	a.mu.Unlock()
	list := object{"kind": "List", "apiVersion": "v1", "metadata": object{"resourceVersion": version}, "items": items}
	switch {
	case strings.Contains(r.Header.Get("Accept"), "as=PartialObjectMetadata"):
		list["kind"], list["apiVersion"] = "PartialObjectMetadataList", "meta.k8s.io/v1"
	default:
		list["kind"], list["apiVersion"] = kindOf(r.URL.Path)
		list["kind"] = list["kind"].(string) + "List"
	}
	answer(w, list)
}

var kinds = map[string]string{
	"namespaces": "Namespace", "nodes": "Node", "pods": "Pod", "services": "Service", "endpointslices": "EndpointSlice", "replicasets": "ReplicaSet", "jobs": "Job",
	"servers": "Server", "meshtlsauthentications": "MeshTLSAuthentication", "authorizationpolicies": "AuthorizationPolicy",
}

// kindOf names what a list's path has.
func kindOf(path string) (kind, apiVersion string) {
	f := strings.Split(strings.Trim(path, "/"), "/")
	apiVersion = f[1]
	if f[0] == "apis" {
		apiVersion = f[1] + "/" + f[2]
	}
	return kinds[f[len(f)-1]], apiVersion
}

// serveWatch streams what happens after a version, or the whole list before it.
func (a *api) serveWatch(w http.ResponseWriter, r *http.Request) {
	path, q := r.URL.Path, r.URL.Query()
	from, _ := strconv.Atoi(q.Get("resourceVersion"))
	w.Header().Set("Content-Type", "application/json")
	events := json.NewEncoder(w)
	a.mu.Lock()
	a.watches[path]++
	a.mu.Unlock()
	if q.Get("sendInitialEvents") == "true" {
		a.mu.Lock()
		var first []object
		for _, obj := range a.kinds[path] {
			first = append(first, object{"type": "ADDED", "object": partial(r, obj)})
		}
		from = a.version
		a.mu.Unlock()
		kind, apiVersion := kindOf(path)
		mark := object{"kind": kind, "apiVersion": apiVersion, "metadata": object{
			"resourceVersion": strconv.Itoa(from), "annotations": object{"k8s.io/initial-events-end": "true"},
		}}
		first = append(first, object{"type": "BOOKMARK", "object": partial(r, mark)})
		for _, e := range first {
			if events.Encode(e) != nil {
				return
			}
		}
	}
	for {
		a.mu.Lock()
		changed, gone, down := a.changed, from < a.oldest, a.down
		var news []object
		for _, c := range a.past {
			if c.version > from && c.path == path {
				news = append(news, object{"type": c.what, "object": partial(r, c.obj)})
			}
		}
		from = max(from, a.version)
		a.mu.Unlock()
		if gone {
			_ = events.Encode(object{"type": "ERROR", "object": failure(http.StatusGone, "Expired")})
			return
		}
		for _, e := range news {
			if events.Encode(e) != nil {
				return
			}
		}
		if f, ok := w.(http.Flusher); ok {
			f.Flush()
		}
		if down {
			return
		}
		select {
		case <-changed:
		case <-r.Context().Done():
			return
		}
	}
}

// serveLease has what the election asks for: get, create, and an update that is
// refused when the lease was written in the meantime.
func (a *api) serveLease(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	name := filepath.Base(r.URL.Path)
	if r.Method == http.MethodGet {
		if a.leases[name] == nil {
			refuse(w, http.StatusNotFound, "NotFound")
			return
		}
		answer(w, a.leases[name])
		return
	}
	given, err := readLease(r)
	if err != nil {
		a.t.Errorf("a lease that can't be read: %v", err)
		refuse(w, http.StatusBadRequest, "BadRequest")
		return
	}
	now := a.leases[given.Name]
	if r.Method == http.MethodPost && now != nil {
		refuse(w, http.StatusConflict, "AlreadyExists")
		return
	}
	if r.Method == http.MethodPut && (now == nil || given.ResourceVersion != now.ResourceVersion) {
		refuse(w, http.StatusConflict, "Conflict")
		return
	}
	a.version++
	given.TypeMeta = metav1.TypeMeta{Kind: "Lease", APIVersion: "coordination.k8s.io/v1"}
	given.ResourceVersion, given.UID = strconv.Itoa(a.version), "lease"
	if d := int32(a.lease / time.Second); given.Spec.LeaseDurationSeconds != nil && *given.Spec.LeaseDurationSeconds > d {
		given.Spec.LeaseDurationSeconds = &d
	}
	a.leases[given.Name] = given
	answer(w, given)
}

// readLease reads a lease in Kubernetes' protobuf or in JSON.
func readLease(r *http.Request) (*coordinationv1.Lease, error) {
	body, err := io.ReadAll(io.LimitReader(r.Body, 1<<20))
	if err != nil {
		return nil, err
	}
	lease := &coordinationv1.Lease{}
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || kind == runtime.ContentTypeJSON {
		return lease, json.Unmarshal(body, lease)
	}
	raw, ok := strings.CutPrefix(string(body), "k8s\x00")
	if !ok {
		return nil, fmt.Errorf("%d bytes of %s without their first four", len(body), kind)
	}
	var wrapped runtime.Unknown
	if err := wrapped.Unmarshal([]byte(raw)); err != nil {
		return nil, err
	}
	return lease, lease.Unmarshal(wrapped.Raw)
}

// begun counts the watches that were begun so far, by path.
func (a *api) begun() map[string]int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return maps.Clone(a.watches)
}
