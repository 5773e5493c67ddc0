package kube

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// TestRequests: the paths, the first of the two forms that are asked for, and
// what is made of the answers.
func TestRequests(t *testing.T) {
	var mu sync.Mutex
	asked := make(map[string]string) // method and path -> Accept
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		asked[r.Method+" "+r.URL.RequestURI()] = r.Header.Get("Accept")
		mu.Unlock()
		w.Header().Set("Content-Type", "application/json")
		body := map[string]string{
			"GET /api/v1/pods?resourceVersion=0":                      `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"5"},"items":[{"metadata":{"name":"p"}}]}`,
			"GET /apis/discovery.k8s.io/v1/endpointslices?watch=true": `{"type":"ADDED","object":{"kind":"EndpointSlice","apiVersion":"discovery.k8s.io/v1","metadata":{"name":"s"}}}`,
			"GET /apis/policy.linkerd.io/v1beta3?timeout=32s":         `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"policy.linkerd.io/v1beta3","resources":[{"name":"servers"}]}`,
			"PUT /apis/coordination.k8s.io/v1/namespaces/n/leases/l":  `{"kind":"Lease","apiVersion":"coordination.k8s.io/v1","metadata":{"name":"l","resourceVersion":"9"},"spec":{"holderIdentity":"a"}}`,
		}[r.Method+" "+r.URL.RequestURI()]
		if body == "" {
			t.Logf("not found: %s %s", r.Method, r.URL.RequestURI())
			w.WriteHeader(http.StatusNotFound)
			body = `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`
		}
		_, _ = w.Write([]byte(body))
	}))
	defer srv.Close()
	c, err := clients(&rest.Config{Host: srv.URL}, "weft-watcher/test")
	must(t, err)
	ctx := t.Context()

	pods, err := c.Pods.List(ctx, metav1.ListOptions{ResourceVersion: "0"})
	must(t, err)
	if len(pods.Items) != 1 || pods.Items[0].Name != "p" || pods.ResourceVersion != "5" {
		t.Errorf("pods %+v", pods)
	}
	w, err := c.Slices.Watch(ctx, metav1.ListOptions{})
	must(t, err)
	if e := <-w.ResultChan(); e.Type != "ADDED" {
		t.Errorf("watch gave %+v", e)
	}
	w.Stop()
	list, err := c.Discovery.Resources(ctx, "policy.linkerd.io/v1beta3")
	must(t, err)
	if len(list.APIResources) != 1 || list.APIResources[0].Name != "servers" {
		t.Errorf("resources %+v", list)
	}
	if _, err := c.Discovery.Resources(ctx, "x/v1"); !apierrors.IsNotFound(err) {
		t.Errorf("Resources() of an unknown group = %v, want not found", err)
	}
	l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "l", Namespace: "n"}}
	got, err := c.Leases("n").Update(ctx, l, metav1.UpdateOptions{})
	must(t, err)
	if got.ResourceVersion != "9" || *got.Spec.HolderIdentity != "a" {
		t.Errorf("lease %+v", got)
	}
	if _, err := c.Leases("n").Create(ctx, l, metav1.CreateOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("Create() = %v, want not found", err)
	}
	if _, err := c.Leases("n").Get(ctx, "l", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("Get() = %v, want not found", err)
	}
	mu.Lock()
	defer mu.Unlock()
	if got, want := asked["GET /api/v1/pods?resourceVersion=0"], "application/vnd.kubernetes.protobuf,application/json"; got != want {
		t.Errorf("pods asked for as %q, want %q", got, want)
	}
	for _, path := range []string{"POST /apis/coordination.k8s.io/v1/namespaces/n/leases", "GET /apis/coordination.k8s.io/v1/namespaces/n/leases/l"} {
		if _, ok := asked[path]; !ok {
			t.Errorf("no request %s in %v", path, asked)
		}
	}
}

// TestRefusedTokenIsReadAgain: at once, not within a minute.
func TestRefusedTokenIsReadAgain(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	must(t, os.WriteFile(file, []byte("old"), 0o600))
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.Header.Get("Authorization") != "Bearer new" {
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = w.Write([]byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Unauthorized","code":401}`))
			return
		}
		_, _ = w.Write([]byte(`{"kind":"PodList","apiVersion":"v1","items":[]}`))
	}))
	defer srv.Close()
	c, err := clients(&rest.Config{Host: srv.URL, BearerToken: "old", BearerTokenFile: file}, "weft-watcher/test")
	must(t, err)
	if _, err := c.Pods.List(t.Context(), metav1.ListOptions{}); !apierrors.IsUnauthorized(err) {
		t.Errorf("List() with an old token = %v, want unauthorized", err)
	}
	must(t, os.WriteFile(file, []byte("new"), 0o600))
	// One more may have begun before the file was written.
	if _, err = c.Pods.List(t.Context(), metav1.ListOptions{}); err != nil {
		_, err = c.Pods.List(t.Context(), metav1.ListOptions{})
	}
	must(t, err)
}
