package kube

import (
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
)

// holder is who has the lease of the mesh's watchers.
func (m *mesh) holder() string {
	m.t.Helper()
	var lease struct {
		Spec struct {
			HolderIdentity string `json:"holderIdentity"`
		} `json:"spec"`
	}
	answer, err := m.do(http.MethodGet, "/apis/coordination.k8s.io/v1/namespaces/"+m.name+"/leases/weft-watcher", "", nil)
	if is(err, http.StatusNotFound) {
		return ""
	}
	if err != nil {
		m.t.Fatal(err)
	}
	decode(m.t, answer, &lease)
	return lease.Spec.HolderIdentity
}

// TestSleepingLeader: a leader that sleeps past its lease and wakes up writes
// nothing more, and takes its turn again when it may.
func TestSleepingLeader(t *testing.T) {
	s := open(t)
	s.install(t, looseCRDs()...)
	ns := s.namespace(t, "sleep", nil)
	s.create(t, in(servers, ns), serverSpec("a", 80))
	m := s.mesh(t)
	first := m.watcher("-identity", "first")
	m.ports("the first row", ns, map[string]uint32{"a": 80})
	second := m.watcher("-identity", "second")
	before := m.reader.Status().Epoch
	if got := m.holder(); got != "first" {
		t.Fatalf("%q holds the lease, want the first", got)
	}
	first.Signal(stop)
	m.until("the second leads", func() error {
		if got := m.holder(); got != "second" || m.reader.Status().Epoch <= before {
			return fmt.Errorf("%q holds the lease, the epoch is %d", got, m.reader.Status().Epoch)
		}
		return nil
	})
	s.patch(t, in(servers, ns)+"/a", object{"spec": object{"port": 81}})
	m.ports("a change written by the second", ns, map[string]uint32{"a": 81})
	epoch := m.reader.Status().Epoch

	first.Signal(goOn)
	m.until("the first knows that it has lost", func() error {
		if metric(t, first, "weft_watcher_leader") != 0 {
			return fmt.Errorf("it believes to lead")
		}
		return nil
	})
	for port := uint32(90); port < 95; port++ {
		s.patch(t, in(servers, ns)+"/a", object{"spec": object{"port": port}})
		m.ports("a change while both are awake", ns, map[string]uint32{"a": port})
	}
	if got := m.reader.Status().Epoch; got != epoch {
		t.Errorf("epoch %d after %d: the first has written", got, epoch)
	}
	second.Stop()
	m.until("the first leads again", func() error {
		if got := m.holder(); got != "first" {
			return fmt.Errorf("%q holds the lease", got)
		}
		return nil
	})
	s.patch(t, in(servers, ns)+"/a", object{"spec": object{"port": 99}})
	m.ports("a change written by the first", ns, map[string]uint32{"a": 99})
}

// TestTokenRotation: the old token stops working, the new one is in the file.
func TestTokenRotation(t *testing.T) {
	s := open(t)
	s.install(t, looseCRDs()...)
	ns := s.namespace(t, "token", nil)
	s.create(t, in(servers, ns), serverSpec("a", 80))
	m := s.mesh(t)
	bound := func(name string) object {
		secret := s.create(t, in(secrets, m.name), named(name, nil))
		return object{"apiVersion": "v1", "kind": "Secret", "name": name, "uid": secret["metadata"].(map[string]any)["uid"]}
	}
	m.useToken(m.newToken(bound("old")))
	w := m.watcher()
	m.ports("the first row", ns, map[string]uint32{"a": 80})
	m.useToken(m.newToken(bound("new")))
	s.remove(t, in(secrets, m.name)+"/old")
	// The API server remembers a token that was good for some seconds.
	s.kill(t)
	s.revive(t)
	s.patch(t, in(servers, ns)+"/a", object{"spec": object{"port": 81}})
	m.ports("a change under the new token", ns, map[string]uint32{"a": 81})
	m.live("the lease is held under the new token")
	if strings.Contains(w.Log(), string(mustRead(t, m.token))) {
		t.Error("the token is in the log")
	}
}

func mustRead(t *testing.T, file string) []byte {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestManyPodsAtOnce tells what 2,000 pods cost.
func TestManyPodsAtOnce(t *testing.T) {
	const many = 2000
	s := open(t)
	ns := s.namespace(t, "many", nil)
	m := s.mesh(t)
	w := m.watcher()
	m.live("a leader")
	rss := func() float64 { return metric(t, w, "process_resident_memory_bytes") / (1 << 20) }
	before := rss()
	began := time.Now()
	work := make(chan int)
	failed := make(chan error, 8)
	for range 8 {
		go func() {
			var first error
			for i := range work {
				body := fmt.Appendf(nil, `{"metadata":{"name":"web-%d","labels":{"app":"web"},"annotations":{"example.com/long":%q}},
"spec":{"containers":[{"name":"app","image":"registry.example/app:1","ports":[{"containerPort":8080}],
"env":[{"name":"A","value":"b"},{"name":"C","value":"d"}],"readinessProbe":{"httpGet":{"path":"/ready","port":8080}}}]}}`, i, strings.Repeat("x", 2000))
				if _, err := s.do(http.MethodPost, in(pods, ns), "application/json", body); err != nil && first == nil {
					first = err
				}
			}
			failed <- first
		}()
	}
	for i := range many {
		work <- i
	}
	close(work)
	for range 8 {
		if err := <-failed; err != nil {
			t.Fatal(err)
		}
	}
	created := time.Now()
	m.until("every pod is in the log", func() error {
		if n := len(m.keys(busv1.Table_TABLE_WORKLOADS, ns)); n != many {
			return fmt.Errorf("%d are", n)
		}
		return nil
	})
	t.Logf("%d pods created in %v, in the log %v after the last; the watcher has %.0f MiB, %.0f before",
		many, created.Sub(began).Round(time.Millisecond), time.Since(created).Round(time.Millisecond), rss(), before)
	if n := metric(t, w, "weft_watcher_publish_failures_total"); n != 0 {
		t.Errorf("%v batches failed", n)
	}
	w.Kill()
	restarted := time.Now()
	w = m.watcher()
	t.Logf("a restarted watcher is ready after %v, with %.0f MiB", time.Since(restarted).Round(time.Millisecond), rss())
	deleted := time.Now()
	for try := 1; ; try++ { // a slow server needs several to answer one in time
		_, err := s.do(http.MethodDelete, in(pods, ns), "application/json", []byte(`{"gracePeriodSeconds":0}`))
		if err == nil {
			break
		}
		if try == 5 {
			t.Fatal(err)
		}
	}
	m.until("no pod is in the log", func() error {
		if n := len(m.keys(busv1.Table_TABLE_WORKLOADS, ns)); n != 0 {
			return fmt.Errorf("%d are", n)
		}
		return nil
	})
	t.Logf("the log is empty %v after a delete of all was begun", time.Since(deleted).Round(time.Millisecond))
}

// TestUnmeshedPodsAreTold: events at owners, counted by reason.
func TestUnmeshedPodsAreTold(t *testing.T) {
	s := open(t)
	ns := s.namespace(t, "unmeshed", object{"linkerd.io/inject": "enabled"})
	m := s.mesh(t)
	w := m.watcher()
	m.live("a leader")
	spec := func(containers ...any) object { return object{"containers": containers} }
	app, proxy := object{"name": "app", "image": "app:1"}, object{"name": "linkerd-proxy", "image": "proxy:1"}
	owned := func(name string, fields object, spec object) object {
		return named(name, object{"spec": spec, "metadata": object{"ownerReferences": []any{
			object{"apiVersion": "apps/v1", "kind": "StatefulSet", "name": fields["owner"], "uid": "uid-" + fields["owner"].(string)},
		}}})
	}
	host := spec(app)
	host["hostNetwork"] = true
	s.create(t, in(pods, ns), owned("web-0", object{"owner": "web"}, spec(app)), owned("web-1", object{"owner": "web"}, spec(app)),
		owned("agent-0", object{"owner": "agent"}, host), owned("db-0", object{"owner": "db"}, spec(app, proxy)), named("alone", object{"spec": spec(app)}))
	began := time.Now()
	want := map[string]string{
		"StatefulSet/web":   "Warning InjectionSkipped",
		"StatefulSet/agent": "Warning InjectionSkipped",
		"StatefulSet/db":    "Normal Injected",
		"Pod/alone":         "Warning InjectionSkipped",
	}
	type event struct {
		InvolvedObject struct{ Kind, Name, UID, APIVersion string } `json:"involvedObject"`
		Type, Reason   string
		Message        string
		Count          int
		Source         struct{ Component string }
	}
	var list struct{ Items []event }
	m.until("the events", func() error {
		answer, err := s.do(http.MethodGet, in(events, ns), "", nil)
		if err != nil {
			return err
		}
		list.Items = nil
		decode(t, answer, &list)
		if len(list.Items) < len(want) {
			return fmt.Errorf("%d events: %+v", len(list.Items), list.Items)
		}
		return nil
	})
	if took := time.Since(began); took > 30*time.Second {
		t.Logf("they came after %v; promised are 30 s on a machine that is not busy", took)
	}
	for _, e := range list.Items {
		about := e.InvolvedObject.Kind + "/" + e.InvolvedObject.Name
		if got := e.Type + " " + e.Reason; got != want[about] || e.Source.Component != "linkerd-proxy-injector" || e.InvolvedObject.UID == "" || e.InvolvedObject.APIVersion == "" {
			t.Errorf("%s: %+v", about, e)
		}
		if about == "StatefulSet/agent" && !strings.HasSuffix(e.Message, "skipped: hostNetwork is enabled") {
			t.Errorf("message %q", e.Message)
		}
		delete(want, about)
	}
	if len(want) > 0 {
		t.Errorf("no event at %v", want)
	}
	for reason, n := range map[string]float64{"not_injected": 3, "host_network_enabled": 1} {
		if got := metric(t, w, `weft_watcher_unmeshed_pods{reason="`+reason+`"}`); got != n {
			t.Errorf("%v pods counted as %s, want %v", got, reason, n)
		}
	}
}
