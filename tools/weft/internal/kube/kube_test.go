package kube

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/weftmesh/weft/services/kit/say"
)

// kubeconfig writes a kubeconfig whose one context is "here".
func kubeconfig(t *testing.T, server string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config")
	text := fmt.Sprintf(`apiVersion: v1
kind: Config
current-context: here
clusters: [{name: c, cluster: {server: %q}}]
users: [{name: u, user: {token: not-a-secret}}]
contexts: [{name: here, context: {cluster: c, user: u}}]
`, server)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// connect makes a client of a server that answers with handle.
func connect(t *testing.T, handle http.HandlerFunc) *Client {
	t.Helper()
	srv := httptest.NewServer(handle)
	t.Cleanup(srv.Close)
	f := &Flags{Kubeconfig: kubeconfig(t, srv.URL), As: "ada", AsGroups: []string{"g1", "g2"}, Mesh: "linkerd"}
	c, err := f.Connect()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func reply(w http.ResponseWriter, code int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(body)
}

func status(code int, reason metav1.StatusReason, message string) metav1.Status {
	return metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure,
		Code: int32(code), Reason: reason, Message: message,
	}
}

func object(apiVersion, kind, ns, name string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": apiVersion, "kind": kind, "metadata": map[string]any{"namespace": ns, "name": name},
	}}
}

// TestRequests: each call is the request that it should be.
func TestRequests(t *testing.T) {
	var mu sync.Mutex
	var asked []string
	c := connect(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(io.LimitReader(r.Body, 1<<16))
		mu.Lock()
		q := r.URL.Query()
		q.Del("timeout") // the same for all
		asked = append(asked, strings.TrimSuffix(r.Method+" "+r.URL.Path+"?"+q.Encode(), "?"))
		mu.Unlock()
		if r.Header.Get("Impersonate-User") != "ada" || len(r.Header.Values("Impersonate-Group")) != 2 {
			t.Errorf("headers lack the impersonation: %v", r.Header)
		}
		switch {
		case r.URL.Path == "/api/v1":
			reply(w, 200, metav1.APIResourceList{APIResources: []metav1.APIResource{
				{Name: "configmaps", Kind: "ConfigMap", Namespaced: true},
				{Name: "serviceaccounts/token", Kind: "TokenRequest", Namespaced: true},
				{Name: "namespaces", Kind: "Namespace"},
			}})
		case r.URL.Path == "/version":
			_, _ = io.WriteString(w, `{"gitVersion":"v1.37.2"}`)
		case r.URL.Path == "/api/v1/pods" && r.URL.Query().Get("continue") == "":
			reply(w, 200, map[string]any{"kind": "PodList", "apiVersion": "v1", "metadata": map[string]any{"continue": "more"}, "items": []any{object("v1", "Pod", "a", "p1").Object}})
		case r.URL.Path == "/api/v1/pods":
			reply(w, 200, map[string]any{"kind": "PodList", "apiVersion": "v1", "items": []any{object("v1", "Pod", "b", "p2").Object}})
		case r.Method == http.MethodPost, r.Method == http.MethodPut:
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write(body)
		default:
			reply(w, 200, object("v1", "ConfigMap", "linkerd", "x").Object)
		}
	})
	ctx := t.Context()
	do := func(err error) {
		t.Helper()
		if err != nil {
			t.Error(err)
		}
	}
	cm := object("v1", "ConfigMap", "linkerd", "x")
	_, err := c.Get(ctx, ConfigMaps, "linkerd", "x")
	do(err)
	pods, err := c.List(ctx, Pods, "", "a=b")
	do(err)
	if len(pods) != 2 {
		t.Errorf("List() gave %d pods, want those of both pages", len(pods))
	}
	_, err = c.Apply(ctx, cm)
	do(err)
	_, err = c.Create(ctx, cm, DryRun())
	do(err)
	_, err = c.Create(ctx, object("v1", "Namespace", "", "n"))
	do(err)
	_, err = c.Update(ctx, cm)
	do(err)
	_, err = c.Patch(ctx, ConfigMaps, "linkerd", "x", types.MergePatchType, []byte(`{}`))
	do(err)
	do(c.Delete(ctx, ConfigMaps, "linkerd", "x"))
	body, err := c.Raw(ctx, "/version?x=1")
	do(err)
	if string(body) != `{"gitVersion":"v1.37.2"}` {
		t.Errorf("Raw() = %s", body)
	}
	want := []string{
		"GET /api/v1/namespaces/linkerd/configmaps/x",
		"GET /api/v1/pods?labelSelector=a%3Db&limit=500",
		"GET /api/v1/pods?continue=more&labelSelector=a%3Db&limit=500",
		"GET /api/v1",
		"PATCH /api/v1/namespaces/linkerd/configmaps/x?fieldManager=weft&force=true",
		"POST /api/v1/namespaces/linkerd/configmaps?dryRun=All&fieldManager=weft",
		"POST /api/v1/namespaces?fieldManager=weft",
		"PUT /api/v1/namespaces/linkerd/configmaps/x?fieldManager=weft",
		"PATCH /api/v1/namespaces/linkerd/configmaps/x?fieldManager=weft",
		"DELETE /api/v1/namespaces/linkerd/configmaps/x",
		"GET /version?x=1",
	}
	mu.Lock()
	defer mu.Unlock()
	if diff := cmp.Diff(want, asked); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
}

// TestErrors: people get what, why and next; programs get the status.
func TestErrors(t *testing.T) {
	c := connect(t, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasSuffix(r.URL.Path, "/forbidden"):
			reply(w, 403, status(403, metav1.StatusReasonForbidden, `configmaps "forbidden" is forbidden: User "ada" cannot get it`))
		case strings.HasSuffix(r.URL.Path, "/unauthorized"):
			reply(w, 401, status(401, metav1.StatusReasonUnauthorized, "Unauthorized"))
		default:
			reply(w, 404, status(404, metav1.StatusReasonNotFound, "not found"))
		}
	})
	get := func(name string) error {
		_, err := c.Get(t.Context(), ConfigMaps, "linkerd", name)
		return err
	}
	text := func(err error) string {
		var b bytes.Buffer
		say.Print(&b, "weft", err, say.Plain)
		return strings.ReplaceAll(b.String(), c.Host(), "HOST")
	}
	if err := get("none"); !apierrors.IsNotFound(err) || text(err) != "weft: reading configmaps/none in namespace linkerd: not found\n" {
		t.Errorf("not found: %s", text(err))
	}
	err := get("forbidden")
	want := `weft: reading configmaps/forbidden in namespace linkerd: the cluster does not let ada
  why:   configmaps "forbidden" is forbidden: User "ada" cannot get it
  next:  ask for the right to do so, or come as somebody else (--context, --as)
`
	if diff := cmp.Diff(want, text(err)); diff != "" || !apierrors.IsForbidden(err) {
		t.Errorf("forbidden (-want +got):\n%s", diff)
	}
	err = get("unauthorized")
	want = `weft: reading configmaps/unauthorized in namespace linkerd: the cluster does not know you
  why:   HOST refused the kubeconfig's credentials
  next:  log in to the cluster again, or name another --context
`
	if diff := cmp.Diff(want, text(err)); diff != "" || !apierrors.IsUnauthorized(err) {
		t.Errorf("unauthorized (-want +got):\n%s", diff)
	}
	_, err = c.Apply(t.Context(), object("policy.linkerd.io/v1beta3", "Server", "x", "y"))
	if !strings.Contains(text(err), "does not know the kind Server of policy.linkerd.io/v1beta3") {
		t.Errorf("unknown kind: %s", text(err))
	}
}

func TestNoCluster(t *testing.T) {
	good := kubeconfig(t, "http://127.0.0.1:1") // nobody's port
	broken := filepath.Join(t.TempDir(), "broken")
	if err := os.WriteFile(broken, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("KUBECONFIG", "/none")
	t.Setenv("HOME", t.TempDir())
	tests := []struct {
		name  string
		flags Flags
		want  string
	}{
		{"no kubeconfig", Flags{}, "no cluster is known here: $KUBECONFIG is /none, which does not exist or names no cluster (next: name a kubeconfig with --kubeconfig or $KUBECONFIG)"},
		{"none at the path", Flags{Kubeconfig: "/nowhere/config"}, "there is no kubeconfig at /nowhere/config"},
		{"unknown context", Flags{Kubeconfig: good, Context: "there"}, `there is no context "there": the kubeconfig has: here`},
		{"broken", Flags{Kubeconfig: broken}, "the kubeconfig makes no sense"},
		{"nobody there", Flags{Kubeconfig: good}, "asking for /version: the cluster does not answer: http://127.0.0.1:1: nothing listens there"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c, err := tt.flags.Connect()
			if err == nil {
				_, err = c.Raw(t.Context(), "/version")
			}
			if err == nil || !strings.HasPrefix(err.Error(), tt.want) {
				t.Errorf("got  %v\nwant %s…", err, tt.want)
			}
			if _, ok := errors.AsType[*say.Problem](err); !ok {
				t.Errorf("%v is not in words for a person", err)
			}
		})
	}
}

func TestCanceled(t *testing.T) {
	c := connect(t, func(http.ResponseWriter, *http.Request) {})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.Get(ctx, Pods, "a", "b"); !errors.Is(err, context.Canceled) {
		t.Errorf("Get() = %v, want canceled", err)
	}
}

func TestFrom(t *testing.T) {
	t.Setenv("LINKERD_NAMESPACE", "mesh")
	var got *Flags
	var bound Flags
	root := &cobra.Command{Use: "weft"}
	bound.Bind(root.PersistentFlags())
	root.AddCommand(&cobra.Command{Use: "x", Run: func(cmd *cobra.Command, _ []string) { got = From(cmd) }})
	root.SetArgs([]string{"x", "--context", "c", "--as", "ada", "--as-group", "g", "--kubeconfig", "k", "--api-addr", "h:1"})
	if err := root.Execute(); err != nil {
		t.Fatal(err)
	}
	want := &Flags{Kubeconfig: "k", Context: "c", As: "ada", AsGroups: []string{"g"}, APIAddr: "h:1", Mesh: "mesh", CNI: "linkerd-cni"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("From() (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(&Flags{Mesh: "linkerd", CNI: "linkerd-cni"}, From(&cobra.Command{})); diff != "" {
		t.Errorf("From() of an unbound tree (-want +got):\n%s", diff)
	}
}

func TestReadyPod(t *testing.T) {
	pod := func(name, ready string, leaving bool) map[string]any {
		p := object("v1", "Pod", "linkerd", name)
		if ready != "" {
			p.Object["status"] = map[string]any{"conditions": []any{map[string]any{"type": "Ready", "status": ready}}}
		}
		if leaving {
			now := metav1.Now()
			p.SetDeletionTimestamp(&now)
		}
		return p.Object
	}
	items := []any{pod("d", "True", false), pod("a", "False", false), pod("b", "True", true), pod("e", "", false), pod("c", "True", false)}
	c := connect(t, func(w http.ResponseWriter, _ *http.Request) {
		reply(w, 200, map[string]any{"kind": "PodList", "apiVersion": "v1", "items": items})
	})
	if got, err := c.ReadyPod(t.Context(), "linkerd", "x=y"); err != nil || got.GetName() != "c" {
		t.Errorf("ReadyPod() = %v, %v, want c", got, err)
	}
	items = []any{}
	if _, err := c.ReadyPod(t.Context(), "linkerd", "x=y"); err == nil || !strings.Contains(err.Error(), "no pod with x=y is ready") {
		t.Errorf("ReadyPod() of none = %v", err)
	}
}
