package promises

import (
	"errors"
	"fmt"
	"testing"
	"time"
)

// marker is in every question to every tier, so that a capture can look for it.
const marker = "pomegranate"

// seen is what a load generator reports: its own counts since its start.
type seen struct {
	OK         int64         `json:"ok"`
	Denied     int64         `json:"denied"`
	Failed     int64         `json:"failed"`
	Late       int64         `json:"late"`
	Slowest    time.Duration `json:"slowest_ns"`
	LastAnswer string        `json:"last_answer"`
	Failures   []failure     `json:"failures"`
}

type failure struct {
	Began  time.Time `json:"began"`
	Took   string    `json:"took"`
	Reason string    `json:"reason"`
}

// report asks a load generator for its counts, through the API server.
func (b *bed) report(t *testing.T, namespace, pod, port string) seen {
	t.Helper()
	var s seen
	until(t, time.Minute, "the report of "+pod, func() error {
		return b.read(lasting(t), fmt.Sprintf("/api/v1/namespaces/%s/pods/%s:%s/proxy/", namespace, pod, port), &s)
	})
	return s
}

// generators of the shop's load, by port.
var generators = []struct{ port, over string }{{"8081", "kept connections"}, {"8082", "new connections"}}

// watch counts the shop's load from now on.
type watch struct {
	b     *bed
	pod   string
	began time.Time
	seen  []seen
}

func (b *bed) watch(t *testing.T) *watch {
	t.Helper()
	w := &watch{b: b, pod: b.pods(t, "shop", "app=load")[0].name, began: time.Now()}
	for _, g := range generators {
		w.seen = append(w.seen, b.report(t, "shop", w.pod, g.port))
	}
	return w
}

// flowing is how many more requests of each kind must go well before a promise
// counts as kept.
const flowing = 20

// end waits until requests go well after all that was done, prints the counts, and
// fails the test if a request failed.
func (w *watch) end(t *testing.T) {
	t.Helper()
	for i, g := range generators {
		now := w.b.report(t, "shop", w.pod, g.port)
		slowest := now.Slowest
		mark := now
		until(t, 2*time.Minute, "requests over "+g.over, func() error {
			now = w.b.report(t, "shop", w.pod, g.port)
			slowest = max(slowest, now.Slowest)
			if now.OK+now.Failed < mark.OK+mark.Failed+flowing {
				return errors.New("no request ends")
			}
			return nil
		})
		old := w.seen[i]
		count := now.OK + now.Denied + now.Failed - old.OK - old.Denied - old.Failed
		failed := now.Denied + now.Failed - old.Denied - old.Failed
		t.Logf("%s: %d requests, %d failed, slowest %s, %d not begun for want of time (%.0f/s)", g.over,
			count, failed, slowest.Round(time.Millisecond), now.Late-old.Late, float64(count)/time.Since(w.began).Seconds())
		if count <= 0 {
			t.Errorf("%s: no request was made", g.over)
		}
		if failed == 0 {
			continue
		}
		t.Errorf("%s: %d of %d requests failed", g.over, failed, count)
		shown := 0
		for _, f := range now.Failures {
			if f.Began.After(w.began.Add(-time.Minute)) && shown < 12 && int64(shown) < failed {
				t.Logf("  %s +%s: %s", f.Began.Format("15:04:05.000"), f.Took, f.Reason)
				shown++
			}
		}
	}
}

// pod is what the tests need to know of one.
type pod struct {
	name, node, ip string
	ready          bool
	ending         bool
	restarts       int
	containers     map[string]bool // ready, by name; sidecars too
}

// pods lists the pods that a selector chooses.
func (b *bed) pods(t *testing.T, namespace, selector string) []pod {
	t.Helper()
	out, err := b.tryPods(t, namespace, selector)
	if err != nil || len(out) == 0 {
		t.Fatalf("pods %s in %s: %d, %v", selector, namespace, len(out), err)
	}
	return out
}

func (b *bed) tryPods(t *testing.T, namespace, selector string) ([]pod, error) {
	t.Helper()
	type status struct {
		Name         string
		Ready        bool
		RestartCount int
	}
	var list struct {
		Items []struct {
			Metadata struct {
				Name              string
				DeletionTimestamp *string
			}
			Spec   struct{ NodeName string }
			Status struct {
				PodIP                                    string
				Conditions                               []struct{ Type, Status string }
				ContainerStatuses, InitContainerStatuses []status
			}
		}
	}
	if err := b.read(lasting(t), "/api/v1/namespaces/"+namespace+"/pods?labelSelector="+selector, &list); err != nil {
		return nil, err
	}
	var out []pod
	for _, i := range list.Items {
		p := pod{name: i.Metadata.Name, node: i.Spec.NodeName, ip: i.Status.PodIP, ending: i.Metadata.DeletionTimestamp != nil, containers: map[string]bool{}}
		for _, c := range i.Status.Conditions {
			p.ready = p.ready || c.Type == "Ready" && c.Status == "True"
		}
		for _, s := range append(i.Status.ContainerStatuses, i.Status.InitContainerStatuses...) {
			p.containers[s.Name] = s.Ready
			p.restarts += s.RestartCount
		}
		out = append(out, p)
	}
	return out, nil
}

// rollout waits until a workload is as it shall be.
func (b *bed) rollout(t *testing.T, namespace string, workloads ...string) {
	t.Helper()
	for _, w := range workloads {
		b.kubectl(t, "-n", namespace, "rollout", "status", w, "--timeout="+patience.String())
	}
}
