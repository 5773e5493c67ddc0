package repair

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/weftmesh/weft/proxy/internal/cni/apiserver"
	"github.com/weftmesh/weft/proxy/internal/cni/apiserver/apitest"
)

// pod is a pod as JSON: owner is its controller's kind, state how its validator
// fares.
func pod(name, owner, state, more string) string {
	owners := ""
	if owner != "" {
		owners = fmt.Sprintf(`{"kind":%q,"controller":true}`, owner)
	}
	return fmt.Sprintf(`{"metadata":{"name":%q,"namespace":"shop","uid":"uid-%s","resourceVersion":"9","labels":{"linkerd.io/control-plane-ns":"linkerd"},"ownerReferences":[%s]%s},
		"status":{"phase":"Pending","initContainerStatuses":[{"name":"linkerd-network-validator",%s}]}}`, name, name, owners, more, state)
}

const (
	failedNow    = `"state":{"terminated":{"exitCode":95}}`
	failedBefore = `"state":{"waiting":{"reason":"CrashLoopBackOff"}},"lastState":{"terminated":{"exitCode":95}}`
)

func TestJudge(t *testing.T) {
	for _, tt := range []struct {
		name, pod string
		want      verdict
	}{
		{"failed", pod("a", "ReplicaSet", failedNow, ""), doomed},
		{"crash loop", pod("a", "StatefulSet", failedBefore, ""), doomed},
		{"passed", pod("a", "ReplicaSet", `"state":{"terminated":{"exitCode":0}}`, ""), fine},
		{"killed", pod("a", "ReplicaSet", `"state":{"terminated":{"exitCode":137}}`, ""), fine},
		{"called wrongly", pod("a", "ReplicaSet", `"state":{"terminated":{"exitCode":64}}`, ""), fine},
		{"going already", pod("a", "ReplicaSet", failedNow, `,"deletionTimestamp":"2026-01-01T00:00:00Z"`), fine},
		{"nobody's", pod("a", "", failedNow, ""), bare},
		{"a static pod's mirror", pod("a", "Node", failedNow, ""), bare},
		{"another container", strings.Replace(pod("a", "ReplicaSet", failedNow, ""), "linkerd-network-validator", "setup", 1), fine},
		{"not injected", strings.Replace(pod("a", "ReplicaSet", failedNow, ""), "linkerd.io/", "example.com/", 1), fine},
		{"a job's pod that has ended", strings.Replace(pod("a", "Job", failedNow, ""), "Pending", "Failed", 1), fine},
		{"empty", "{}", fine},
	} {
		var p apiserver.Pod
		if err := json.Unmarshal([]byte(tt.pod), &p); err != nil {
			t.Fatal(err)
		}
		if got := judge(&p); got != tt.want {
			t.Errorf("%s: judge() = %v, want %v", tt.name, got, tt.want)
		}
	}
}

// start runs a repairer for as long as the test lives.
func start(t *testing.T, srv *apitest.Server) (*Repairer, *prometheus.Registry) {
	t.Helper()
	dir, getenv := srv.Account()
	api, err := apiserver.InCluster(getenv, dir)
	if err != nil {
		t.Fatal(err)
	}
	reg := prometheus.NewRegistry()
	r := &Repairer{
		API: api, Node: "node-1", Name: "linkerd-cni-x", Pause: time.Millisecond, Backoff: time.Millisecond,
		Metrics: NewMetrics(reg), Log: slog.New(slog.DiscardHandler),
		Now: func() time.Time { return time.Date(2026, 11, 30, 9, 0, 0, 1500, time.UTC) },
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run() = %v", err)
		}
	})
	return r, reg
}

// await waits for n deletions and events.
func await(t *testing.T, srv *apitest.Server, n int) {
	t.Helper()
	for range n {
		select {
		case <-srv.Changed():
		case <-time.After(time.Minute):
			t.Fatalf("deleted are %v, events %v", srv.Deleted(), srv.Events())
		}
	}
}

func list(pods ...string) string {
	return `{"metadata":{"resourceVersion":"7"},"items":[` + strings.Join(pods, ",") + `]}`
}

func changed(pod string) string {
	return `{"type":"MODIFIED","object":` + strings.ReplaceAll(pod, "\n", "") + `}`
}

func TestRepair(t *testing.T) {
	srv := apitest.New(t)
	srv.Put("/api/v1/pods", list(pod("old", "ReplicaSet", failedBefore, ""), pod("good", "ReplicaSet", `"state":{}`, "")))
	var queries atomic.Value
	srv.Fail(func(r *http.Request) int {
		if r.Method == http.MethodGet {
			queries.Store(r.URL.Query().Get("fieldSelector") + " " + r.URL.Query().Get("labelSelector"))
		}
		return 0
	})
	_, reg := start(t, srv)
	await(t, srv, 2)
	for _, name := range []string{"a", "b"} {
		srv.Say(changed(pod(name, "ReplicaSet", `"state":{"running":{}}`, "")))
		srv.Say(changed(pod(name, "ReplicaSet", failedNow, "")))
		srv.Say(changed(pod(name, "ReplicaSet", failedBefore, ""))) // the next event of a pod that is going
		await(t, srv, 2)
	}
	var want []string
	for _, name := range []string{"old", "a", "b"} {
		want = append(want, "/api/v1/namespaces/shop/pods/"+name+" uid-"+name)
	}
	if diff := cmp.Diff(want, srv.Deleted()); diff != "" {
		t.Errorf("deleted (-want +got):\n%s", diff)
	}
	event := map[string]any{
		"apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": map[string]any{"namespace": "shop", "name": "old.18ecc70aa83aa5dc"},
		"eventTime": "2026-11-30T09:00:00.000001Z", "reportingController": "linkerd-cni-repair-controller", "reportingInstance": "linkerd-cni-x",
		"type": "Normal", "reason": "LinkerdCNINotConfigured", "action": "Deleting", "note": "Deleting pod to create a new one with proper CNI config",
		"regarding": map[string]any{"apiVersion": "v1", "kind": "Pod", "namespace": "shop", "name": "old", "uid": "uid-old"},
	}
	if diff := cmp.Diff(event, srv.Events()[0]); diff != "" {
		t.Errorf("the first event (-want +got):\n%s", diff)
	}
	if got := queries.Load(); got != "spec.nodeName=node-1 linkerd.io/control-plane-ns" {
		t.Errorf("it asked for %s", got)
	}
	const text = `# HELP linkerd_cni_repair_controller_pods_deleted_total Number of pods deleted by the controller
# TYPE linkerd_cni_repair_controller_pods_deleted_total counter
linkerd_cni_repair_controller_pods_deleted_total 3
`
	if err := testutil.GatherAndCompare(reg, bytes.NewBufferString(text), "linkerd_cni_repair_controller_pods_deleted_total"); err != nil {
		t.Error(err)
	}
}

// Any end of the stream: the end, an error, a version that is too old, a server
// that is away.
func TestWatchIsOpenedAgain(t *testing.T) {
	srv := apitest.New(t)
	srv.Put("/api/v1/pods", list())
	start(t, srv)
	for i, end := range []string{
		"end", `{"type":"ERROR","object":{"code":410,"reason":"Expired"}}`, `{"type":"ERROR","object":{"code":500}}`, `{"type":`, `{"type":"ADDED","object":7}`,
	} {
		srv.Say(end)
		name := fmt.Sprint("pod-", i)
		failed := pod(name, "ReplicaSet", failedNow, "")
		srv.Put("/api/v1/pods", list(failed)) // seen by a new list
		tick := time.NewTicker(20 * time.Millisecond)
		for deadline := time.Now().Add(time.Minute); !strings.HasSuffix(strings.Join(srv.Deleted(), " "), name); <-tick.C {
			if time.Now().After(deadline) {
				t.Fatalf("after %s: deleted are %v", end, srv.Deleted())
			}
			srv.Say(changed(failed)) // or by the watch, though an old stream may swallow a line
		}
		tick.Stop()
	}
}

func TestServerAway(t *testing.T) {
	srv := apitest.New(t)
	srv.Put("/api/v1/pods", list(pod("a", "DaemonSet", failedNow, "")))
	var n atomic.Int32
	srv.Fail(func(*http.Request) int {
		if n.Add(1) < 4 {
			return http.StatusServiceUnavailable
		}
		return 0
	})
	r, _ := start(t, srv)
	await(t, srv, 2)
	if got := testutil.ToFloat64(r.Metrics.watchErrors); got != 3 {
		t.Errorf("%v watch errors, want 3", got)
	}
}

// What nobody would create again is kept, and its owner hears of it once.
func TestBarePod(t *testing.T) {
	srv := apitest.New(t)
	srv.Put("/api/v1/pods", list(pod("mine", "", failedNow, "")))
	r, _ := start(t, srv)
	await(t, srv, 1)
	srv.Say(changed(pod("mine", "", failedBefore, "")))
	srv.Say(changed(pod("other", "Job", failedNow, "")))
	await(t, srv, 2)
	if got := srv.Deleted(); len(got) != 1 || !strings.Contains(got[0], "other") {
		t.Errorf("deleted are %v", got)
	}
	if events := srv.Events(); len(events) != 2 || events[0]["type"] != "Warning" || events[0]["action"] != "Keeping" {
		t.Errorf("events are %v", events)
	}
	if got := testutil.ToFloat64(r.Metrics.kept); got != 1 {
		t.Errorf("%v pods kept, want 1", got)
	}
}

func TestDeletionsThatFail(t *testing.T) {
	srv := apitest.New(t)
	srv.Put("/api/v1/pods", list(pod("gone", "ReplicaSet", failedNow, ""), pod("forbidden", "ReplicaSet", failedNow, ""), pod("last", "ReplicaSet", failedNow, "")))
	srv.Fail(func(r *http.Request) int {
		switch {
		case r.Method != http.MethodDelete:
		case strings.HasSuffix(r.URL.Path, "/gone"):
			return http.StatusConflict // another one of that name
		case strings.HasSuffix(r.URL.Path, "/forbidden"):
			return http.StatusForbidden
		}
		return 0
	})
	r, _ := start(t, srv)
	await(t, srv, 2)
	if got := srv.Deleted(); len(got) != 1 || !strings.Contains(got[0], "last") {
		t.Errorf("deleted are %v", got)
	}
	if got := testutil.ToFloat64(r.Metrics.deleteErrors); got != 1 {
		t.Errorf("%v errors, want 1", got)
	}
}

// A flood never blocks the watch, and never deletes faster than allowed.
func TestFlood(t *testing.T) {
	r := &Repairer{Metrics: NewMetrics(prometheus.NewRegistry()), Log: slog.New(slog.DiscardHandler)}
	queue := make(chan apiserver.Pod, 2)
	var p apiserver.Pod
	if err := json.Unmarshal([]byte(pod("a", "ReplicaSet", failedNow, "")), &p); err != nil {
		t.Fatal(err)
	}
	for range 5 {
		r.offer(p, queue)
	}
	if got := testutil.ToFloat64(r.Metrics.overflow); len(queue) != 2 || got != 3 {
		t.Errorf("%d queued and %v dropped, want 2 and 3", len(queue), got)
	}
}

// The API server takes the names that events get, whatever the pod is called.
func TestEventName(t *testing.T) {
	at := time.Unix(1796000000, 123456789)
	for _, name := range []string{"a", "web-0", "a.b", strings.Repeat("x", 253), strings.Repeat("x", 235) + ".y", strings.Repeat("x", 234) + "--y"} {
		got := eventName(name, at)
		if problems := len(got) > 253 || strings.Contains(got, "..") || strings.Contains(got, "-."); problems {
			t.Errorf("eventName(%d bytes) = %q", len(name), got)
		}
	}
	if a, b := eventName("a", at), eventName("a", at.Add(1)); a == b {
		t.Errorf("two events are both named %s", a)
	}
}
