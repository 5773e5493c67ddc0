package mesh

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/weftmesh/weft/e2e/internal/proc"
)

func plainHouse(t *testing.T) *house {
	t.Helper()
	h := newHouse(t, namespaceShop, serviceOf("books", "10.96.1.1", 8080))
	h.write("books-1.yaml", podOf("books-1", "books", "10.1.0.1", 8080, false))
	h.wantEndpoints("the first endpoint is known", "10.1.0.1:8080")
	return h
}

func TestBusRestartedEmpty(t *testing.T) {
	h := plainHouse(t)
	h.bus.Kill()
	h.write("books-2.yaml", podOf("books-2", "books", "10.1.0.2", 8080, false))
	h.wantEndpoints("without a bus the old answer stays", "10.1.0.1:8080")
	h.startBus()
	h.wantEndpoints("the change made meanwhile arrives", "10.1.0.1:8080 10.1.0.2:8080")
	h.remove("books-1.yaml")
	h.wantEndpoints("and so does the next one", "10.1.0.2:8080")
}

func TestWatcherKilledLeavesStateAndSaysStale(t *testing.T) {
	h := plainHouse(t)
	h.watcher.Kill()
	proc.Eventually(t, "weft status calls destination stale", func() error { return h.hasState("destination", true) })
	h.wantEndpoints("a stale destination keeps answering", "10.1.0.1:8080")

	h.remove("books-1.yaml")
	h.write("books-2.yaml", podOf("books-2", "books", "10.1.0.2", 8080, false))
	h.startWatcher()
	h.wantEndpoints("a new watcher brings what changed, deletions included", "10.1.0.2:8080")
	proc.Eventually(t, "weft status calls destination live", func() error { return h.hasState("destination", false) })
}

func TestFreshReplicaStartsFromPeer(t *testing.T) {
	h := plainHouse(t)
	h.watcher.Kill()
	h.destinationAddr = proc.FreePort(t)
	h.startDestination() // a second replica; the first is its only source
	h.wantEndpoints("a replica that never met the watcher answers", "10.1.0.1:8080")
	proc.Eventually(t, "both replicas say how old they are", func() error { return h.olderThan("destination", 2, time.Second) })
	proc.Eventually(t, "so does the new one's metric", func() error {
		page, err := h.destination.Get("/metrics")
		if err != nil {
			return err
		}
		if !regexp.MustCompile(`(?m)^weft_bus_age_seconds\{cluster="local"\} [1-9]`).MatchString(page) {
			return errors.New("weft_bus_age_seconds is not there, or below 1")
		}
		return nil
	})
}

// olderThan asks `weft status` whether n processes of a service are stale, and
// for how long they say so.
func (h *house) olderThan(service string, n int, age time.Duration) error {
	out, err := h.tryWeft("status", "--bus.servers", "nats://"+h.busAddr, "--bus.cluster", h.cluster, "-o", "json")
	if err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	var status struct {
		Processes []struct {
			Service string `json:"service"`
			State   string `json:"state"`
			StaleMs int64  `json:"staleMs"`
		} `json:"processes"`
	}
	if err := json.Unmarshal([]byte(out), &status); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	for _, p := range status.Processes {
		if p.Service == service && p.State == "stale" && p.StaleMs >= age.Milliseconds() {
			n--
		}
	}
	if n != 0 {
		return fmt.Errorf("%d more of %s should be stale for %v in %s", n, service, age, out)
	}
	return nil
}

func TestMalformedManifestIsSkippedAndNamed(t *testing.T) {
	h := plainHouse(t)
	h.write("broken.yaml", "kind: Service\n  metadata: {{{")
	h.write("wrong.yaml", `{apiVersion: v1, kind: Pod, metadata: {name: odd, namespace: shop}, spec: {containers: "none"}}`)
	h.write("books-2.yaml", podOf("books-2", "books", "10.1.0.2", 8080, false))
	h.wantEndpoints("the good manifest beside them is served", "10.1.0.1:8080 10.1.0.2:8080")
	proc.Eventually(t, "weft status names both", func() error {
		out, err := h.tryWeft("status", "--bus.servers", "nats://"+h.busAddr, "--bus.cluster", h.cluster)
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		for _, name := range []string{"broken.yaml", "odd"} {
			if !strings.Contains(out, name) {
				return fmt.Errorf("no %s in:\n%s", name, out)
			}
		}
		return nil
	})
	h.remove("books-2.yaml")
	h.wantEndpoints("changes go on beside them", "10.1.0.1:8080")
}

// hasState asks `weft status` whether a service is stale.
func (h *house) hasState(service string, stale bool) error {
	out, err := h.tryWeft("status", "--bus.servers", "nats://"+h.busAddr, "--bus.cluster", h.cluster, "-o", "json")
	if err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	var status struct {
		Processes []struct {
			Service string `json:"service"`
			State   string `json:"state"`
		} `json:"processes"`
	}
	if err := json.Unmarshal([]byte(out), &status); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	for _, p := range status.Processes {
		if p.Service == service && (p.State == "stale") == stale {
			return nil
		}
	}
	return fmt.Errorf("want %s stale=%v in %s", service, stale, out)
}

func TestSecondClustersServiceAppearsAndDisappears(t *testing.T) {
	remote := newHouse(t, namespaceShop)
	exported := strings.Replace(serviceOf("books", "10.97.1.1", 8080), "namespace: shop}", `namespace: shop, labels: {mirror.linkerd.io/exported: "true"}}`, 1)
	remote.write("books.yaml", exported, podOf("books-1", "books", "10.2.0.1", 8080, true))

	h := &house{t: t, dir: t.TempDir(), cluster: "near", busAddr: remote.busAddr, destinationAddr: proc.FreePort(t)}
	h.write("base.yaml", namespaceShop)
	h.startWatcher()
	h.startDestination()
	proc.Service(t, "mirror", nil, append(h.busFlags(), "-remote.servers", "nats://"+remote.busAddr, "-remote.cluster", remote.cluster,
		"-cluster-name", "far", "-sink", "dir", "-dir", h.dir)...)
	mirrored := func() string {
		files, err := filepath.Glob(filepath.Join(h.dir, "*"))
		if err != nil {
			t.Fatal(err)
		}
		var all strings.Builder
		for _, f := range files {
			body, err := os.ReadFile(f)
			if err != nil {
				continue
			}
			all.Write(body)
		}
		return all.String()
	}
	proc.Eventually(t, "books-far appears", func() error {
		if !strings.Contains(mirrored(), "books-far") {
			return errors.New("no manifest names it")
		}
		return h.profile("books-far.shop.svc.cluster.local:8080")
	})
	remote.remove("books.yaml")
	proc.Eventually(t, "books-far disappears", func() error {
		if strings.Contains(mirrored(), "books-far") {
			return errors.New("a manifest still names it")
		}
		if h.profile("books-far.shop.svc.cluster.local:8080") == nil {
			return errors.New("destination still knows it")
		}
		return nil
	})
}
