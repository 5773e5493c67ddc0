package mesh

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/weftmesh/weft/e2e/internal/proc"
)

// listed serves an application that says what it was asked, and remembers it.
func listed(t *testing.T, addr string) <-chan string {
	t.Helper()
	lis, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	asked := make(chan string, 1000)
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		line := fmt.Sprintf("%s %s %s %s", r.Method, r.Host, r.RequestURI, body)
		select {
		case asked <- line:
		default:
		}
		_, _ = io.WriteString(w, line)
	})}
	go func() { _ = srv.Serve(lis) }()
	t.Cleanup(func() { _ = srv.Close() })
	return asked
}

// What Linkerd's API has no word for, a Gateway API route has, and our policy says
// to our proxy: rewrites, copies, sessions.
func TestRoutesBeyondLinkerd(t *testing.T) {
	h, client, _ := meshedHouse(t, 61)
	const second, shadow = "127.3.61.3", "127.3.61.4"
	asked := listed(t, second+":8080")
	copies := listed(t, shadow+":8080")
	h.write("more.yaml", serviceOf("inner", "10.96.61.2", 8080), podOf("inner-1", "inner", second, 8080, false),
		serviceOf("shadow", "10.96.61.3", 8080), podOf("shadow-1", "shadow", shadow, 8080, false))
	h.write("route.yaml", `{apiVersion: gateway.networking.k8s.io/v1, kind: HTTPRoute, metadata: {name: beyond, namespace: shop},
  spec: {parentRefs: [{group: "", kind: Service, name: books, port: 8080}], rules: [{
    matches: [{path: {type: PathPrefix, value: /old}}],
    filters: [
      {type: URLRewrite, urlRewrite: {hostname: inner.example, path: {type: ReplacePrefixMatch, replacePrefixMatch: /new}}},
      {type: RequestMirror, requestMirror: {backendRef: {name: shadow, port: 8080}}},
      {type: ResponseHeaderModifier, responseHeaderModifier: {set: [{name: x-route, value: beyond}]}}],
    sessionPersistence: {sessionName: sid, type: Cookie},
    backendRefs: [{name: inner, port: 8080}]}]}}`)
	post := func() (*http.Response, string, error) {
		res, err := through(client).Post("http://books.shop.svc.cluster.local:8080/old/x?q", "text/plain", strings.NewReader("body"))
		if err != nil {
			return nil, "", err
		}
		defer func() { _ = res.Body.Close() }()
		body, err := io.ReadAll(res.Body)
		return res, string(body), err
	}
	const want = "POST inner.example /new/x?q body"
	proc.Eventually(t, "the route holds", func() error {
		res, body, err := post()
		switch {
		case err != nil:
			return err
		case res.StatusCode != http.StatusOK || body != want:
			return fmt.Errorf("%s %q", res.Status, body)
		case res.Header.Get("X-Route") != "beyond" || !strings.HasPrefix(res.Header.Get("Set-Cookie"), "sid="):
			return fmt.Errorf("the answer has %v", res.Header)
		}
		return nil
	})
	if got := <-asked; got != want {
		t.Errorf("the backend was asked %q, want %q", got, want)
	}
	if got := <-copies; got != want {
		t.Errorf("the mirror was asked %q, want %q", got, want)
	}
}
