package scale_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/weftmesh/weft/e2e/internal/proc"
)

// object is a manifest.
type object = map[string]any

// manifests are Services with fifteen pods each, as a user's files and the API
// server's answers have them.
func manifests(pods int, annotations object) []object {
	var out []object
	for i := range pods {
		name, ns := fmt.Sprintf("service-%d", i/15), "bench"
		if i%15 == 0 {
			out = append(out, object{
				"apiVersion": "v1", "kind": "Service", "metadata": object{"name": name, "namespace": ns, "annotations": annotations},
				"spec": object{"clusterIP": fmt.Sprintf("10.43.%d.%d", i/15>>8, i/15&255), "selector": object{"app": name}, "ports": []object{{"name": "http", "port": 80, "targetPort": 8080}}},
			})
		}
		ip := fmt.Sprintf("10.%d.%d.%d", 64+i>>16, i>>8&255, i&255)
		out = append(out, object{
			"apiVersion": "v1", "kind": "Pod",
			"metadata": object{
				"name": fmt.Sprintf("%s-%d", name, i), "namespace": ns, "annotations": annotations,
				"labels": object{"app": name, "linkerd.io/control-plane-ns": "linkerd"},
			},
			"spec": object{"nodeName": fmt.Sprintf("node-%d", i/30), "containers": []object{
				{"name": "main", "image": "x", "ports": []object{{"name": "http", "containerPort": 8080}}},
				{"name": "linkerd-proxy", "image": "x", "env": []object{{"name": "LINKERD2_PROXY_INBOUND_LISTEN_ADDR", "value": "0.0.0.0:4143"}}},
			}},
			"status": object{
				"phase": "Running", "podIP": ip, "podIPs": []object{{"ip": ip}}, "conditions": []object{{"type": "Ready", "status": "True"}},
			},
		})
	}
	return out
}

// lay writes manifests into files of 200, each in one step.
func lay(t *testing.T, dir string, all []object) {
	t.Helper()
	for n := 0; len(all) > 0; n++ {
		part := all[:min(200, len(all))]
		all = all[len(part):]
		body, err := json.Marshal(object{"apiVersion": "v1", "kind": "List", "items": part})
		if err != nil {
			t.Fatal(err)
		}
		tmp := filepath.Join(dir, ".next")
		if err := os.WriteFile(tmp, body, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(tmp, filepath.Join(dir, fmt.Sprintf("%05d.json", n))); err != nil {
			t.Fatal(err)
		}
	}
}

// TestWatcher: a watcher's cold start with a tenth of the cluster in files, and
// what objects cost that come again with an annotation that nobody reads.
func TestWatcher(t *testing.T) {
	s := bench(t, "watcher")
	pods := scaledAtLeast(15_000, 150)
	m := bare(t)
	dir := t.TempDir()
	lay(t, dir, manifests(pods, object{"example.com/build": "1"}))
	began := time.Now()
	p := proc.Launch(t, "watcher", nil, "-source", "dir", "-dir", dir, "-bus.servers", m.nats.ClientURL())
	p.Ready()
	name := fmt.Sprintf("%d pods in files: ", pods)
	s.took(name+"start to the whole log", time.Since(began), 0)
	s.took(name+"processor time", cpu(t, p), 0)
	s.say(name+"live heap", heapNow(t, p), "MB", 0)
	s.exactly(name+"workloads in the log", int(gauge(t, p, `weft_bus_rows{cluster="local",table="workloads"}`)), pods, "")

	wire := m.tapped()
	lay(t, dir, manifests(pods, object{"example.com/build": "2"}))
	// What comes after them shows that they have been looked at.
	lay(t, dir, append(manifests(pods, object{"example.com/build": "2"}), object{
		"apiVersion": "v1", "kind": "Service", "metadata": object{"name": "last", "namespace": "bench"}, "spec": object{"ports": []object{{"port": 80}}},
	}))
	eventually(t, "the last object is in the log", func() bool { return gauge(t, p, `weft_bus_rows{cluster="local",table="services"}`) > float64(pods/15) })
	wire.flush(t)
	s.exactly(name+"bus messages for a new annotation that nobody reads on all of them", int(wire.msgs.Load())-1, 0, "")
}
