package mesh

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weftmesh/weft/e2e/internal/proc"
)

var rounds = flag.Int("rounds", 2, "rollouts in TestPolicyComesBeforeItsEndpoint")

// TestPolicyComesBeforeItsEndpoint rolls books over and over while amy, who may
// come in, and bob, who may not, ask without a pause: amy is never denied, and bob
// never let in (complaint D17). Each pod has a Server and an AuthorizationPolicy of
// its own. In turns the proxy's own default would let everybody in, and nobody, so
// that a request judged by it would show; and in turns the pods ask two replicas of
// policy, as amy and bob ask two of destination.
func TestPolicyComesBeforeItsEndpoint(t *testing.T) {
	const amy, bob = "127.3.9.1", "127.3.9.2"
	h := newHouse(t, namespaceShop, serviceOf("books", "10.96.1.1", 8080))
	replicas := []string{proc.FreePort(t), proc.FreePort(t)}
	for _, addr := range replicas {
		proc.Service(t, "policy", nil, append(h.busFlags(), "-listen", addr)...)
	}
	h.policyAddr = replicas[0]
	other := proc.FreePort(t)
	proc.Service(t, "destination", nil, append(h.busFlags(), "-listen", other, "-outbound-transport-mode", "transport-header")...)
	h.startIdentity("amy", "bob", "books")
	h.write("clients.yaml", podOf("amy-1", "amy", amy, 8080, true), podOf("bob-1", "bob", bob, 8080, true), `
apiVersion: policy.linkerd.io/v1alpha1
kind: MeshTLSAuthentication
metadata: {name: amy, namespace: shop}
spec: {identities: [amy.shop.serviceaccount.identity.linkerd.cluster.local]}`)
	h.proxyFor("amy-1", "amy", amy)
	h.proxyFor("bob-1", "bob", bob, "DESTINATION_SVC_ADDR="+other)

	roll := func(round int) {
		ip := fmt.Sprintf("127.3.9.%d", 10+round)
		name := fmt.Sprintf("books-%d", round)
		app(t, ip+":8080")
		h.write(name+".yaml", guarded(name, ip, false)...)
		open := "all-unauthenticated"
		if round%2 == 1 {
			open = "deny"
		}
		// Its readiness is the kubelet's: only then is it put among the endpoints.
		h.proxyFor(name, "books", ip, "INBOUND_DEFAULT_POLICY="+open, "POLICY_SVC_ADDR="+replicas[round/2%2])
		h.write(name+".yaml", guarded(name, ip, true)...)
		proc.Eventually(t, name+" gets requests", func() error { return hits(t, amy, ip) })
		if round > 0 {
			h.remove(fmt.Sprintf("books-%d.yaml", round-1))
		}
	}
	roll(0)
	proc.Eventually(t, "bob is denied", func() error {
		if got, err := code(t.Context(), through(bob), books); got != http.StatusForbidden {
			return fmt.Errorf("status %d, %w", got, err)
		}
		return nil
	})
	stop := []func() (int64, string){
		asks(t, amy, http.StatusOK), asks(t, bob, http.StatusForbidden),
		// New connections are judged from their first byte on.
		asksAnew(t, amy, http.StatusOK), asksAnew(t, bob, http.StatusForbidden),
	}
	for round := 1; round <= *rounds; round++ {
		roll(round)
	}
	for i, who := range []string{"amy", "bob", "amy, anew each time,", "bob, anew each time,"} {
		n, wrong := stop[i]()
		if wrong != "" {
			t.Errorf("%s, after %d requests: %s", who, n, wrong)
		}
		if n < int64(*rounds) {
			t.Errorf("%s has sent only %d requests; the test proves too little", who, n)
		}
		t.Logf("%s: %d requests", who, n)
	}
}

// guarded is a pod of books with a Server of its own, into which only amy may.
func guarded(name, ip string, ready bool) []string {
	pod := strings.Replace(podOf(name, "books", ip, 8080, true), "labels: {app: books", "labels: {app: books, pod: "+name, 1)
	if !ready {
		pod = strings.Replace(pod, `status: "True"`, `status: "False"`, 1)
	}
	return []string{pod, fmt.Sprintf(`
apiVersion: policy.linkerd.io/v1beta3
kind: Server
metadata: {name: %[1]s, namespace: shop}
spec: {podSelector: {matchLabels: {pod: %[1]s}}, port: http, proxyProtocol: HTTP/1}
---
apiVersion: policy.linkerd.io/v1alpha1
kind: AuthorizationPolicy
metadata: {name: %[1]s, namespace: shop}
spec:
  targetRef: {group: policy.linkerd.io, kind: Server, name: %[1]s}
  requiredAuthenticationRefs: [{group: policy.linkerd.io, kind: MeshTLSAuthentication, name: amy}]`, name)}
}

// asks sends requests one after the other until stop is called, which returns how
// many and the first that was answered otherwise than it must be.
func asks(t *testing.T, from string, want int) (stop func() (int64, string)) {
	t.Helper()
	client := through(from)
	return asking(t, func() *http.Client { return client }, want)
}

// asksAnew does so on a connection of its own each time.
func asksAnew(t *testing.T, from string, want int) (stop func() (int64, string)) {
	t.Helper()
	return asking(t, func() *http.Client {
		c := through(from)
		c.Transport.(*http.Transport).DisableKeepAlives = true
		return c
	}, want)
}

func asking(t *testing.T, client func() *http.Client, want int) (stop func() (int64, string)) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var n atomic.Int64
	done := make(chan string, 1)
	go func() {
		for ctx.Err() == nil {
			got, err := code(ctx, client(), books)
			if got != want && ctx.Err() == nil {
				done <- fmt.Sprintf("status %d, want %d (%v)", got, want, err)
				return
			}
			n.Add(1)
			select {
			case <-time.After(5 * time.Millisecond):
			case <-ctx.Done():
			}
		}
		done <- ""
	}()
	return func() (int64, string) {
		cancel()
		return n.Load(), <-done
	}
}

// code is the status of an answer; 0 if there was none.
func code(ctx context.Context, client *http.Client, target string) (int, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, target, nil)
	if err != nil {
		return 0, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return 0, err
	}
	_ = resp.Body.Close()
	if why := resp.Header.Values("l5d-proxy-error"); !slices.Equal(why, nil) {
		return resp.StatusCode, fmt.Errorf("%q", why)
	}
	return resp.StatusCode, nil
}
