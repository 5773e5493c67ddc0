package promises

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

func scaled(t *testing.T, b *bed) {
	t.Helper()
	w := b.watch(t)
	for _, n := range []int{1, 5, 2} {
		for _, tier := range tiers {
			b.kubectl(t, "-n", "shop", "scale", "deployment/"+tier.app, "--replicas="+strconv.Itoa(n))
		}
		for _, tier := range tiers {
			b.rollout(t, "shop", "deployment/"+tier.app)
			b.onlyPods(t, "shop", "app="+tier.app, n)
		}
		if n == 5 {
			for _, tier := range tiers[:2] {
				for _, p := range b.pods(t, "shop", "app="+tier.app) {
					b.requested(t, time.Minute, p.name)
				}
			}
		}
	}
	w.end(t)
	remembered(t, b)
}

// remembered asks for the past: one address of web stayed at least, four came, and
// three went.
func remembered(t *testing.T, b *bed) {
	t.Helper()
	out, err := b.weft(t, "history", "endpoints", "shop/web", "--since", "10m", "-o", "json")
	if err != nil {
		t.Fatal(err)
	}
	var past struct {
		Changes []struct{ Rows []struct{ What string } }
		Gaps    []struct{ From time.Time }
	}
	if err := json.Unmarshal([]byte(out), &past); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	times := map[string]int{}
	for _, c := range past.Changes {
		for _, r := range c.Rows {
			times[r.What]++
		}
	}
	if times["created"] < 4 || times["removed"] < 3 || len(past.Gaps) > 0 {
		t.Errorf("the history of web's endpoints tells %v with %d gaps:\n%s", times, len(past.Gaps), out)
	}
	t.Logf("weft history tells of web's endpoints: %v", times)
}

// onlyPods waits until there are so many pods, none of them about to end.
func (b *bed) onlyPods(t *testing.T, namespace, selector string, n int) {
	t.Helper()
	until(t, patience, fmt.Sprintf("%d pods %s", n, selector), func() error {
		pods, err := b.tryPods(t, namespace, selector)
		if err != nil {
			return err
		}
		ready := 0
		for _, p := range pods {
			if p.ready && !p.ending {
				ready++
			}
		}
		if ready != n || len(pods) != n {
			return fmt.Errorf("%d pods, %d ready", len(pods), ready)
		}
		return nil
	})
}

// rotated replaces the issuer by two more, with the command that people would use;
// it waits until every proxy shows a chain of the new one.
func rotated(t *testing.T, b *bed) {
	t.Helper()
	w := b.watch(t)
	key := filepath.Join(t.TempDir(), "anchor.key")
	first := b.issuer(t)
	for i, with := range []string{"--save-trust-anchor-key", "--trust-anchor-key-file"} {
		if out, err := b.weft(t, "identity", "rotate", "issuer", with, key, "--lifetime", "48h", "--wait", patience.String()); err != nil {
			t.Fatalf("rotation %d: %v\n%s", i+1, err, out)
		}
		now := b.issuer(t)
		if now == first {
			t.Errorf("rotation %d changed nothing", i+1)
		}
		first = now
		t.Logf("rotation %d: every proxy shows a certificate of the new issuer", i+1)
	}
	w.end(t)
}

// issuer is the certificate in the issuer's Secret.
func (b *bed) issuer(t *testing.T) string {
	t.Helper()
	var secret struct{ Data map[string]string }
	if err := b.read(t.Context(), "/api/v1/namespaces/"+controlPlane+"/secrets/linkerd-identity-issuer", &secret); err != nil {
		t.Fatal(err)
	}
	return secret.Data["crt.pem"] + secret.Data["tls.crt"]
}

// rolled restarts one part after the other, the bus's servers too.
func rolled(t *testing.T, b *bed) {
	t.Helper()
	for _, of := range everything {
		t.Run(strings.ReplaceAll(of, "/", " "), func(t *testing.T) {
			w := b.watch(t)
			b.kubectl(t, "-n", controlPlane, "rollout", "restart", of)
			b.rollout(t, controlPlane, of)
			w.end(t)
		})
	}
}
