package kube_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/weftmesh/weft/services/mirror/internal/kube"
)

// TestRequests: a round over HTTP makes what is new and deletes exactly what is
// not wanted any more.
func TestRequests(t *testing.T) {
	var mu sync.Mutex
	asked := make(map[string]string) // method and path -> body
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(io.LimitReader(r.Body, 1<<16))
		mu.Lock()
		asked[r.Method+" "+r.URL.Path] = string(body)
		mu.Unlock()
		w.Header().Set("Content-Type", "application/json")
		switch {
		case r.Method == http.MethodPost:
			_, _ = w.Write(body)
		case r.Method == http.MethodDelete:
			_, _ = fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Success"}`)
		case r.URL.Path == "/api/v1/namespaces":
			_, _ = fmt.Fprint(w, `{"kind":"NamespaceList","apiVersion":"v1","items":[{"metadata":{"name":"pottery"}}]}`)
		case r.URL.Path == "/api/v1/services":
			_, _ = fmt.Fprint(w, `{"kind":"ServiceList","apiVersion":"v1","items":[{"metadata":{"name":"old","namespace":"pottery","uid":"u1"}}]}`)
		default:
			_, _ = fmt.Fprint(w, `{"kind":"EndpointSliceList","apiVersion":"discovery.k8s.io/v1","items":[]}`)
		}
	}))
	defer srv.Close()
	api, err := kube.Connect(&rest.Config{Host: srv.URL})
	if err != nil {
		t.Fatal(err)
	}
	s := &kube.Sink{Client: api, Cluster: "east"}
	done, err := s.Apply(t.Context(), mirrors("east", "10.0.0.1", 80, "pottery/kiln"))
	if err != nil || done.Created != 2 || done.Deleted != 1 {
		t.Errorf("Apply() = %+v, %v; want 2 created, 1 deleted", done, err)
	}
	mu.Lock()
	defer mu.Unlock()
	for path, want := range map[string]string{
		"POST /api/v1/namespaces/pottery/services":                         `"kind":"Service"`,
		"POST /apis/discovery.k8s.io/v1/namespaces/pottery/endpointslices": `"kind":"EndpointSlice"`,
		"DELETE /api/v1/namespaces/pottery/services/old":                   `"uid":"u1"`,
	} {
		if !strings.Contains(asked[path], want) {
			t.Errorf("%s was sent %q, want it to hold %s", path, asked[path], want)
		}
	}
}

// TestRefusedTokenIsReadAgain: at once, not within a minute.
func TestRefusedTokenIsReadAgain(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	put := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put("old")
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.Header.Get("Authorization") != "Bearer new" {
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Unauthorized","code":401}`)
			return
		}
		_, _ = fmt.Fprint(w, `{"kind":"NamespaceList","apiVersion":"v1","items":[]}`)
	}))
	defer srv.Close()
	api, err := kube.Connect(&rest.Config{Host: srv.URL, BearerToken: "old", BearerTokenFile: file})
	if err != nil {
		t.Fatal(err)
	}
	list := func() error {
		_, err := api.Namespaces(t.Context(), metav1.ListOptions{})
		return err
	}
	if list() == nil {
		t.Error("an old token was taken")
	}
	put("new")
	if err := list(); err != nil { // one more may have begun before the file was written
		if err := list(); err != nil {
			t.Error(err)
		}
	}
}
