package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/weftmesh/weft/services/kit/conf"
	"github.com/weftmesh/weft/services/mirror/internal/derive"
	"github.com/weftmesh/weft/services/mirror/internal/feed"
	"github.com/weftmesh/weft/services/mirror/internal/link"
)

// apiServer has one Link.
type apiServer struct {
	mu      sync.Mutex
	spec    string
	status  string
	patches int
}

func (s *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	const path = "/apis/multicluster.linkerd.io/v1alpha3/namespaces/mc/links/east"
	switch {
	case r.Method == http.MethodGet && r.URL.Path == path && s.spec != "":
		_, _ = fmt.Fprintf(w, `{"kind":"Link","spec":%s,"status":%s}`, s.spec, s.status)
	case r.Method == http.MethodPatch && r.URL.Path == path+"/status" && r.Header.Get("Content-Type") == "application/merge-patch+json":
		b, _ := io.ReadAll(r.Body)
		var in struct{ Status json.RawMessage }
		_ = json.Unmarshal(b, &in) // what is damaged has no status
		s.status, s.patches = string(in.Status), s.patches+1
		_, _ = io.WriteString(w, `{}`)
	default:
		w.WriteHeader(http.StatusNotFound)
		_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`)
	}
}

func (s *apiServer) set(spec string) { s.mu.Lock(); defer s.mu.Unlock(); s.spec = spec }

const spec = `{"targetClusterName":"east","targetClusterDomain":"e.example","gatewayAddress":"192.0.2.1","gatewayPort":"4143",` +
	`"gatewayIdentity":"gw","selector":{"matchLabels":{"mirror.linkerd.io/exported":"true"}}}`

// A Link's life: it is read for each round, a status is written when something
// is new, and a Link that cannot be used, or is gone, changes nothing.
func TestLinked(t *testing.T) {
	server := &apiServer{spec: spec, status: "null"}
	web := httptest.NewServer(server)
	t.Cleanup(web.Close)
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(file, fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Config","current-context":"c",
		"clusters":[{"name":"c","cluster":{"server":%q}}],"users":[{"name":"u","user":{}}],
		"contexts":[{"name":"c","context":{"cluster":"c","user":"u"}}]}`, web.URL), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, err := conf.LoadFrom(defaults(), []string{"-link", "mc/east", "-kubeconfig", file}, nil)
	if err != nil {
		t.Fatal(err)
	}
	cfg, from, err := follow(t.Context(), cfg)
	if err != nil || cfg.ClusterName != "east" || cfg.remote().Cluster != "east" {
		t.Fatalf("follow() = %+v, %v", cfg, err)
	}
	way := cfg.links(derive.Rules{}, from, feed.New(nil, derive.Rules{}), nil)
	is, err := way.Link(t.Context())
	if err != nil || is.Domain != "e.example" || len(is.Gateway.Addresses) != 1 || is.Gateway.Identity != "gw" || is.Cluster != "east" {
		t.Fatalf("Link() = %+v, %v", is, err)
	}
	round := link.Outcome{Problems: []derive.Problem{{Service: "pottery/kiln", Reason: "it has no ports"}}}
	for range 3 {
		if err := way.Report(t.Context(), round); err != nil {
			t.Fatal(err)
		}
		if _, err := way.Link(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if server.patches != 1 || !strings.Contains(server.status, `"InvalidService"`) {
		t.Errorf("%d patches, status %s", server.patches, server.status)
	}
	for _, bad := range []string{
		"", strings.Replace(spec, `"4143"`, `"x"`, 1), strings.Replace(spec, `"targetClusterName":"east"`, `"targetClusterName":"west"`, 1),
	} {
		server.set(bad)
		if _, err := way.Link(t.Context()); err == nil {
			t.Errorf("Link() of %q = nil", bad)
		}
	}
	server.set(strings.Replace(spec, "192.0.2.1", "192.0.2.2,192.0.2.3", 1))
	if is, err := way.Link(t.Context()); err != nil || len(is.Gateway.Addresses) != 2 {
		t.Errorf("Link() after a change = %+v, %v", is, err)
	}
}

func TestLinkInAFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "link.yaml")
	if _, _, err := follow(t.Context(), config{Link: "file:" + file}); err == nil {
		t.Error("follow() without the file = nil")
	}
	if err := os.WriteFile(file, []byte("kind: Link\nspec: "+spec), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, from, err := follow(t.Context(), config{Link: "file:" + file})
	if err != nil || cfg.ClusterName != "east" {
		t.Fatalf("follow() = %+v, %v", cfg, err)
	}
	if err := from.Write(t.Context(), nil); err != nil {
		t.Error(err)
	}
	if _, _, err := follow(t.Context(), config{Link: "file:" + file, ClusterName: "west"}); err == nil {
		t.Error("follow() with another cluster's name = nil")
	}
}
