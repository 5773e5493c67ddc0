package promises

import (
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

func identity(account, namespace string) string {
	return account + "." + namespace + ".serviceaccount.identity." + controlPlane + ".cluster.local"
}

// tiers of the shop, each with the one who asks it.
var tiers = []struct{ app, by string }{{"web", "load"}, {"prices", "web"}, {"ledger", "prices"}}

func meshed(t *testing.T, b *bed) {
	t.Helper()
	b.apply(t, "shop.yaml")
	b.rollout(t, "shop", "deployment/ledger", "deployment/prices", "deployment/web", "deployment/load")
	for _, tier := range tiers {
		for _, p := range b.pods(t, "shop", "app="+tier.app) {
			if len(p.containers) < 2 || !p.containers["linkerd-proxy"] || !p.ready {
				t.Errorf("%s has no proxy that is ready: %+v", p.name, p)
			}
		}
	}
	settled(t, b)
	w := b.watch(t)
	proved(t, b)
	w.end(t)
}

// proved looks from all sides at what the shop's load goes over.
func proved(t *testing.T, b *bed) {
	t.Helper()
	t.Run("applications see who asks", func(t *testing.T) { seeClients(t, b) })
	t.Run("proxies count connections with both identities", func(t *testing.T) { countIdentities(t, b) })
	t.Run("nothing is in the clear between pods", func(t *testing.T) { listen(t, b) })
}

// settled waits until the shop's start is over: a load that was there before its
// services were has failures.
func settled(t *testing.T, b *bed) {
	t.Helper()
	load := b.pods(t, "shop", "app=load")[0].name
	for _, g := range generators {
		last := b.report(t, "shop", load, g.port)
		until(t, patience, "a hundred requests that go well over "+g.over, func() error {
			now := b.report(t, "shop", load, g.port)
			if now.Failed != last.Failed {
				last = now
			}
			if now.OK-last.OK < 100 {
				return fmt.Errorf("%d of them, %d failed", now.OK-last.OK, now.Failed)
			}
			return nil
		})
	}
}

func seeClients(t *testing.T, b *bed) {
	t.Helper()
	answer := b.report(t, "shop", b.pods(t, "shop", "app=load")[0].name, generators[0].port).LastAnswer
	for _, tier := range tiers[:2] { // the ledger speaks no protocol that has headers
		if want := tier.app + " asked by " + identity(tier.by, "shop") + "\n"; !strings.Contains(answer, want) {
			t.Errorf("the page lacks %q:\n%s", want, answer)
		}
	}
}

// countIdentities looks for connections that were not authenticated, on both ends.
func countIdentities(t *testing.T, b *bed) {
	t.Helper()
	for _, tier := range tiers {
		for _, p := range b.pods(t, "shop", "app="+tier.app) {
			m := b.metrics(t, "shop", p.name, proxyAdmin)
			if m.sum(t, "tcp_open_total", `direction="inbound"`, `peer="src"`, `tls="true"`, `client_id="`+identity(tier.by, "shop")+`"`) == 0 {
				t.Errorf("no connection from %s came to %s", tier.by, p.name)
			}
		}
		for _, p := range b.pods(t, "shop", "app="+tier.by) {
			m := b.metrics(t, "shop", p.name, proxyAdmin)
			to := []string{`direction="outbound"`, `peer="dst"`, `dst_service="` + tier.app + `"`}
			all := m.sum(t, "tcp_open_total", to...)
			proved := m.sum(t, "tcp_open_total", append(to, `tls="true"`, `server_id="`+identity(tier.app, "shop")+`"`)...)
			if all == 0 || proved != all {
				t.Errorf("%v of %v connections of %s to %s are authenticated", proved, all, p.name, tier.app)
			}
		}
	}
}

// Ports of metrics.
const (
	proxyAdmin   = "4191"
	watcherAdmin = "9989"
)

// metrics is what a process says of itself, as text.
type metrics string

func (b *bed) metrics(t *testing.T, namespace, pod, port string) metrics {
	t.Helper()
	var text []byte
	until(t, time.Minute, "metrics of "+pod, func() (err error) {
		text, err = b.get(lasting(t), "/api/v1/namespaces/"+namespace+"/pods/"+pod+":"+port+"/proxy/metrics")
		return err
	})
	return metrics(text)
}

var sample = regexp.MustCompile(`^(\w+)\{(.*)\} ([0-9.e+]+)$`)

// sum adds up the series that have all the labels.
func (m metrics) sum(t *testing.T, name string, labels ...string) float64 {
	t.Helper()
	sum := 0.0
lines:
	for line := range strings.Lines(string(m)) {
		m := sample.FindStringSubmatch(strings.TrimSpace(line))
		if m == nil || m[1] != name {
			continue
		}
		for _, l := range labels {
			if !strings.Contains(","+m[2]+",", ","+l+",") {
				continue lines
			}
		}
		v, err := strconv.ParseFloat(m[3], 64)
		if err != nil {
			t.Fatal(err)
		}
		sum += v
	}
	return sum
}

// requested waits until a pod gets requests from meshed clients.
func (b *bed) requested(t *testing.T, limit time.Duration, pod string) {
	t.Helper()
	until(t, limit, "requests at "+pod, func() error {
		if b.metrics(t, "shop", pod, proxyAdmin).sum(t, "request_total", `direction="inbound"`, `tls="true"`) == 0 {
			return errors.New("none came")
		}
		return nil
	})
}

func denied(t *testing.T, b *bed) {
	t.Helper()
	t.Cleanup(func() { b.kubectl(t, "delete", "namespace", "bank", "--ignore-not-found", "--wait=false") })
	b.apply(t, "bank.yaml")
	b.rollout(t, "bank", "deployment/vault")
	b.apply(t, "clients.yaml")
	b.kubectl(t, "-n", "bank", "wait", "pod", "-l", "app=client", "--for=condition=Ready", "--timeout="+patience.String())
	var teller, thief seen
	until(t, patience, "a hundred answers for each", func() error {
		teller, thief = b.report(t, "bank", "teller", "8081"), b.report(t, "bank", "thief", "8081")
		if teller.OK+teller.Denied+teller.Failed < 100 || thief.OK+thief.Denied+thief.Failed < 100 {
			return fmt.Errorf("teller %+v, thief %+v", teller, thief)
		}
		return nil
	})
	t.Logf("the one who may: %d requests, %d denied, %d failed", teller.OK+teller.Denied+teller.Failed, teller.Denied, teller.Failed)
	t.Logf("the one who may not: %d requests, %d denied, %d failed, %d let in", thief.OK+thief.Denied+thief.Failed, thief.Denied, thief.Failed, thief.OK)
	if teller.Denied > 0 || teller.Failed > 0 {
		t.Errorf("who may ask was refused: %+v", teller.Failures)
	}
	if thief.OK > 0 || thief.Failed > 0 {
		t.Errorf("who may not ask was let in, or not told so: %+v", thief.Failures)
	}
	foretold(t, b)
}

// foretold asks what would be if the one authorization were gone, without doing so.
func foretold(t *testing.T, b *bed) {
	t.Helper()
	out, err := b.weft(t, "policy", "check", "--delete", "AuthorizationPolicy/bank/vault", "--of", "bank", "--all", "-o", "json")
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 1 {
		t.Fatalf("weft policy check: %v instead of exit code 1, which says that something changes\n%s", err, out)
	}
	var told struct {
		Flows []struct {
			Workload, Client, Route string
			Port                    int
			Changes                 bool
			Before, After           struct{ Outcome string }
		}
	}
	if err := json.Unmarshal([]byte(out), &told); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	want := map[string]string{identity("teller", "bank"): "allowed, then denied", identity("thief", "bank"): "denied, then denied"}
	judged := map[string]bool{}
	for _, f := range told.Flows {
		if f.Workload != "bank/vault" || f.Port != 8080 || f.Client == "" || f.Route == "" {
			continue
		}
		if got := f.Before.Outcome + ", then " + f.After.Outcome; got != want[f.Client] {
			t.Errorf("weft policy check says of %s (%s): %s, not %q", f.Client, f.Route, got, want[f.Client])
		}
		judged[f.Client] = true
	}
	if len(judged) != len(want) {
		t.Errorf("weft policy check judges %d of %d clients:\n%s", len(judged), len(want), out)
	}
}
