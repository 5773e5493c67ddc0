package mesh

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weftmesh/weft/e2e/internal/proc"
)

// TestPolicyCheckForetells asks what a manifest would do to the traffic that the
// proxies have seen, applies it, and sees that happen.
func TestPolicyCheckForetells(t *testing.T) {
	h, client, server := meshedHouse(t, 10)
	const closed = `{apiVersion: policy.linkerd.io/v1beta3, kind: Server, metadata: {name: books, namespace: shop},
  spec: {podSelector: {matchLabels: {app: books}}, port: http, proxyProtocol: HTTP/1}}`
	const door = `
apiVersion: policy.linkerd.io/v1alpha1
kind: AuthorizationPolicy
metadata: {name: door, namespace: shop}
spec:
  targetRef: {group: policy.linkerd.io, kind: Server, name: books}
  requiredAuthenticationRefs: [{kind: ServiceAccount, name: WHO}]`
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	type flow struct {
		To, From, Client, Target string
		Before, After            struct{ Outcome, By string }
	}
	check := func(args ...string) (exit int, flows []flow) {
		t.Helper()
		out, err := h.tryWeft(append([]string{
			"policy", "check", "-o", "json", "--server", h.policyAddr,
			"--proxy", "shop/books-1=" + server + ":4191", "--proxy", "shop/client-1=" + client + ":4191",
		}, args...)...)
		if failed, ok := errors.AsType[*exec.ExitError](err); ok {
			exit = failed.ExitCode()
		} else if err != nil {
			t.Fatal(err)
		}
		var said struct{ Flows []flow }
		if exit < usage && json.Unmarshal([]byte(out), &said) != nil {
			t.Fatalf("exit code %d: %s, %v", exit, out, err)
		}
		return exit, said.Flows
	}
	identity := "client.shop.serviceaccount.identity.linkerd.cluster.local"

	// Nobody could come in any more.
	file := write("closed.yaml", closed)
	proc.Eventually(t, "the flow is known, and would be denied", func() error {
		if _, err := get(t.Context(), through(client), books); err != nil {
			return err
		}
		exit, flows := check("-f", file)
		for _, f := range flows {
			if f.To == "shop/books-1" && f.Client == identity && f.Before.Outcome == "allowed" && f.After.Outcome == "denied" && exit == 1 {
				return nil
			}
		}
		return fmt.Errorf("exit code %d, %+v", exit, flows)
	})
	// Only somebody else could.
	other := write("other.yaml", closed+"\n---"+strings.Replace(door, "WHO", "amy", 1))
	if exit, _ := check("-f", other); exit != 1 {
		t.Errorf("a door for amy: exit code %d", exit)
	}
	// The same client could: nothing of what comes in changes.
	open := write("open.yaml", closed+"\n---"+strings.Replace(door, "WHO", "client", 1))
	if exit, flows := check("-f", open); exit != 0 {
		t.Errorf("a door for the client: exit code %d, %+v", exit, flows)
	}
	// What was said comes to pass.
	h.write("policy.yaml", closed+"\n---"+strings.Replace(door, "WHO", "client", 1))
	quiet := 0
	proc.Eventually(t, "the client still comes in", func() error {
		if c, err := code(t.Context(), through(client), books); c != http.StatusOK {
			t.Fatalf("status %d, %v", c, err)
		}
		if exit, flows := check("--delete", "AuthorizationPolicy/shop/door"); exit != 1 {
			return fmt.Errorf("exit code %d: %+v", exit, flows)
		}
		if quiet++; quiet < 2 {
			return errors.New("not for long enough")
		}
		return nil
	})
	h.write("policy.yaml", closed)
	proc.Eventually(t, "without the door it does not", func() error {
		if c, err := code(t.Context(), through(client), books); c != http.StatusForbidden {
			return fmt.Errorf("status %d, %w", c, err)
		}
		return nil
	})
	// A route would lead the client's requests elsewhere.
	route := write("route.yaml", `
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: away, namespace: shop}
spec:
  parentRefs: [{group: "", kind: Service, name: books, port: 8080}]
  rules: [{backendRefs: [{name: ghost, port: 80}]}]`)
	proc.Eventually(t, "a route in the way is seen", func() error {
		exit, flows := check("-f", route)
		for _, f := range flows {
			if f.From == "shop/client-1" && f.Target == "books.shop.svc:8080" && f.Before.Outcome == "default http" && exit == 1 {
				return nil
			}
		}
		return fmt.Errorf("exit code %d, %+v", exit, flows)
	})
	if exit, _ := check("-f", write("bad.yaml", strings.Replace(closed, "http,", "[],", 1))); exit != usage {
		t.Errorf("nonsense: exit code %d", exit)
	}
	h.explains(t, client)
}

// explains asks why of the same replicas.
func (h *house) explains(t *testing.T, client string) {
	t.Helper()
	t.Helper()
	out := h.weft("explain", "po/client-1", "po/books-1:8080", "-n", "shop", "--policy-server", h.policyAddr,
		"--client-address", client, "--client-identity", "client.shop.serviceaccount.identity.linkerd.cluster.local", "--path", "/")
	for _, want := range []string{"is denied at shop:books-1 port 8080", "by server books", "there is no authorization", "takes the request"} {
		wantIn(t, out, want)
	}
	out = h.weft("explain", "po/client-1", "books.shop.svc.cluster.local:8080", "-n", "shop", "--server", h.destinationAddr, "--policy-server", h.policyAddr, "--path", "/")
	for _, want := range []string{"Pod shop/books-1", "Service shop/books:8080, protocol detect: default http takes it", "goes to Service shop/books:8080"} {
		wantIn(t, out, want)
	}
}

func wantIn(t *testing.T, text, want string) {
	t.Helper()
	if !strings.Contains(text, want) {
		t.Errorf("it does not say %q:\n%s", want, text)
	}
}
