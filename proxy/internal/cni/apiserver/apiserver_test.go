package apiserver_test

import (
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weftmesh/weft/proxy/internal/cni/apiserver"
	"github.com/weftmesh/weft/proxy/internal/cni/apiserver/apitest"
)

const podPath = "/api/v1/namespaces/shop/pods/web-0"

func TestGet(t *testing.T) {
	srv := apitest.New(t)
	srv.Put(podPath, `{"metadata":{"name":"web-0","uid":"u1"},"spec":{"containers":[{"name":"app"}],
		"initContainers":[{"name":"linkerd-proxy","restartPolicy":"Always","securityContext":{"runAsUser":2102}}]},"unknown":[1]}`)
	c, err := apiserver.FromKubeconfig(srv.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	var pod apiserver.Pod
	if err := c.Get(t.Context(), apiserver.PodPath("shop", "web-0"), nil, &pod); err != nil {
		t.Fatal(err)
	}
	proxy := pod.Container("linkerd-proxy")
	if pod.Metadata.UID != "u1" || proxy == nil || *proxy.SecurityContext.RunAsUser != 2102 || pod.Container("none") != nil {
		t.Errorf("Get() = %+v", pod)
	}
	err = c.Get(t.Context(), apiserver.PodPath("shop", "../../x"), nil, &pod)
	if apiserver.Code(err) != http.StatusNotFound || !strings.Contains(err.Error(), "for a test") {
		t.Errorf("Get() of nothing = %v", err)
	}
	srv.SetToken("another")
	if err := c.Get(t.Context(), podPath, nil, &pod); apiserver.Code(err) != http.StatusUnauthorized || strings.Contains(err.Error(), apitest.Token) {
		t.Errorf("Get() with an old token = %v", err)
	}
}

// The token of a pod is read for each call: the kubelet renews it.
func TestInClusterTokenRotates(t *testing.T) {
	srv := apitest.New(t)
	srv.Put(podPath, `{}`)
	dir, getenv := srv.Account()
	c, err := apiserver.InCluster(getenv, dir)
	if err != nil {
		t.Fatal(err)
	}
	var pod apiserver.Pod
	for _, token := range []string{apitest.Token, "renewed"} {
		srv.SetToken(token)
		if err := os.WriteFile(filepath.Join(dir, "token"), []byte(token), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := c.Get(t.Context(), podPath, nil, &pod); err != nil {
			t.Errorf("with %s: %v", token, err)
		}
	}
}

func TestServer(t *testing.T) {
	for host, want := range map[string]string{"10.0.0.1": "https://10.0.0.1:443", "fd00::1": "https://[fd00::1]:443", "[fd00::1]": "https://[fd00::1]:443"} {
		got, err := apiserver.Server(func(name string) string {
			return map[string]string{"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": "443"}[name]
		})
		if err != nil || got != want {
			t.Errorf("Server(%s) = %s, %v; want %s", host, got, err, want)
		}
	}
	if _, err := apiserver.Server(func(string) string { return "" }); err == nil {
		t.Error("Server() outside a pod gave no error")
	}
}

func TestBadKubeconfigs(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kubeconfig")
	for _, content := range []string{
		"", "apiVersion: v1", "{}", `{"clusters":[{}],"users":[{}]}`, `{"clusters":[{"cluster":{"server":"ftp://x"}}],"users":[{"user":{"token":"secret"}}]}`,
		`{"clusters":[{"cluster":{"server":"https://x","certificate-authority-data":"c2VjcmV0"}}],"users":[{"user":{"token":"secret"}}]}`,
	} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := apiserver.FromKubeconfig(path); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("FromKubeconfig(%s) = %v", content, err)
		}
	}
	if _, err := apiserver.FromKubeconfig(path + "-none"); !os.IsNotExist(err) {
		t.Errorf("FromKubeconfig() of nothing = %v", err)
	}
}

func TestWatch(t *testing.T) {
	read := func(lines ...string) (got []string, last error) {
		srv := apitest.New(t)
		c, err := apiserver.FromKubeconfig(srv.Kubeconfig())
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range lines {
			srv.Say(l)
		}
		for event, err := range c.WatchPods(t.Context(), url.Values{}) {
			if err != nil {
				return got, err
			}
			got = append(got, event.Type+" "+event.Pod.Metadata.Name+" "+event.Pod.Metadata.ResourceVersion)
		}
		return got, nil
	}
	got, err := read(`{"type":"ADDED","object":{"metadata":{"name":"a","resourceVersion":"7"}}}`,
		`{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"9"}}}`, "end")
	if diff := cmp.Diff([]string{"ADDED a 7", "BOOKMARK  9"}, got); err != nil || diff != "" {
		t.Errorf("WatchPods() (-want +got): %v\n%s", err, diff)
	}
	if _, err := read(`{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired","message":"too old"}}`, "end"); apiserver.Code(err) != http.StatusGone {
		t.Errorf("an expired version ended in %v", err)
	}
	if _, err := read(`{"type":"ADDED","object":`, "end"); err == nil {
		t.Error("half a line ended in no error")
	}
}
