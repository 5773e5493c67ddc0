package state_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weftmesh/weft/bus"
	"github.com/weftmesh/weft/services/watcher/internal/dir"
	"github.com/weftmesh/weft/services/watcher/internal/shape"
	"github.com/weftmesh/weft/services/watcher/internal/state"
)

// parts are objects that join with each other in every way that exists.
const parts = `
{apiVersion: v1, kind: Namespace, metadata: {name: grove}}
---
{apiVersion: v1, kind: Node, metadata: {name: vm-a, labels: {topology.kubernetes.io/zone: west}}}
---
{apiVersion: apps/v1, kind: ReplicaSet, metadata: {name: plum-1, namespace: grove, ownerReferences: [{apiVersion: apps/v1, kind: Deployment, name: plum, uid: d}]}}
---
{apiVersion: batch/v1, kind: Job, metadata: {name: job-1, namespace: grove, ownerReferences: [{apiVersion: batch/v1, kind: CronJob, name: job, uid: d}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: a, namespace: grove, labels: {app: plum}, ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: plum-1, uid: r}]}, spec: {nodeName: vm-a}, status: {phase: Running, podIP: 10.0.0.1}}
---
{apiVersion: v1, kind: Pod, metadata: {name: b, namespace: grove, labels: {app: plum}, ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: plum-1, uid: r}]}, spec: {nodeName: vm-a}, status: {phase: Running, podIP: 10.0.0.2}}
---
{apiVersion: v1, kind: Pod, metadata: {name: c, namespace: grove, ownerReferences: [{apiVersion: batch/v1, kind: Job, name: job-1, uid: r}]}, status: {phase: Succeeded, podIP: 10.0.0.2}}
---
{apiVersion: v1, kind: Service, metadata: {name: plum, namespace: grove}, spec: {selector: {app: plum}, ports: [{port: 80}]}}
---
{apiVersion: v1, kind: Service, metadata: {name: pear, namespace: grove}, spec: {selector: {app: plum}, ports: [{port: 80}]}}
---
{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: s, namespace: grove, labels: {kubernetes.io/service-name: pear}}, addressType: IPv4, endpoints: [{addresses: [10.0.0.1], targetRef: {kind: Pod, name: a}}]}
---
{apiVersion: workload.linkerd.io/v1beta1, kind: ExternalWorkload, metadata: {name: vm, namespace: grove, labels: {app: plum}}, spec: {meshTLS: {identity: a, serverName: b}, workloadIPs: [{ip: 192.0.2.1}], ports: [{port: 80}]}}
---
{apiVersion: policy.linkerd.io/v1beta3, kind: Server, metadata: {name: web, namespace: grove}, spec: {podSelector: {}, port: 80}}
`

// TestAnyOrderGivesOneAnswer lets objects come, go and come again in random
// order, in batches of random size, and compares with a state that saw only the
// end of it.
func TestAnyOrderGivesOneAnswer(t *testing.T) {
	items := dir.Parse([]byte(parts)).Items
	if len(items) != 12 {
		t.Fatalf("parsed %d objects, want 12", len(items))
	}
	for seed := range uint64(200) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		w := newWorld()
		w.derives = true
		s := state.New(w)
		log := make(map[string]bus.Change)
		settle := func() {
			s.Settle()
			changes, _ := s.Changes()
			for _, c := range changes {
				k := fmt.Sprint(c.Table, c.Key)
				if c.Value == nil {
					delete(log, k)
				} else {
					log[k] = c
				}
			}
			s.Published()
		}
		for range 100 {
			it := items[rnd.IntN(len(items))]
			if _, exists := w.objects[it.ID]; exists && rnd.IntN(3) == 0 {
				delete(w.objects, it.ID)
			} else {
				w.objects[it.ID] = it.Obj
			}
			s.Apply(it.ID, time.Unix(1, 0))
			if rnd.IntN(3) == 0 {
				settle()
			}
		}
		settle()

		fresh := state.New(w)
		for id := range w.objects {
			fresh.Apply(id, time.Unix(1, 0))
		}
		fresh.Settle()
		want := show(fresh.Truth())
		if diff := cmp.Diff(want, show(s.Truth())); diff != "" {
			t.Fatalf("seed %d: the order of events shows (-fresh +this):\n%s", seed, diff)
		}
		if diff := cmp.Diff(want, show(sorted(values(log)))); diff != "" {
			t.Fatalf("seed %d: the log differs from the truth (-truth +log):\n%s", seed, diff)
		}
	}
}

// TestEmptiesOut: when every object is gone, nothing is left behind.
func TestEmptiesOut(t *testing.T) {
	w := newWorld()
	w.derives = true
	s := state.New(w)
	items := dir.Parse([]byte(parts)).Items
	for _, it := range items {
		w.objects[it.ID] = it.Obj
		s.Apply(it.ID, time.Unix(1, 0))
	}
	s.Settle()
	for _, it := range items {
		delete(w.objects, it.ID)
		s.Apply(it.ID, time.Unix(2, 0))
	}
	s.Settle()
	if got := s.Truth(); len(got) != 0 {
		t.Errorf("rows left:\n%s", show(got))
	}
	if got := s.Counts(); len(got) != 0 {
		t.Errorf("Counts() = %v, want none", got)
	}
	if n := state.Remembered(s); n != 0 {
		t.Errorf("%d entries left in the indexes", n)
	}
}

func TestObservedIsTheOldestCause(t *testing.T) {
	w := newWorld()
	s := state.New(w)
	for i, it := range dir.Parse([]byte(parts)).Items {
		w.objects[it.ID] = it.Obj
		s.Apply(it.ID, time.Unix(int64(10-i), 0))
	}
	if _, at := s.Changes(); !at.Equal(time.Unix(-1, 0)) {
		t.Errorf("observed %v, want %v", at.Unix(), -1)
	}
	s.Published()
	if changes, at := s.Changes(); len(changes) != 0 || !at.IsZero() {
		t.Errorf("after Published: %d changes of %v", len(changes), at)
	}
}

func TestHugeRowIsSkipped(t *testing.T) {
	w := newWorld()
	s := state.New(w)
	id := shape.ID{Kind: shape.Namespace, Name: "grove"}
	obj := shape.Decode(shape.Namespace, []byte(`{"metadata":{"name":"grove"}}`))
	obj.SetAnnotations(map[string]string{"config.linkerd.io/x": strings.Repeat("x", 600<<10)})
	w.objects[id] = obj
	s.Apply(id, time.Time{})
	some, total := s.Skipped(5)
	if total != 1 || len(s.Truth()) != 0 {
		t.Fatalf("%d skipped, %d rows; want 1 and 0", total, len(s.Truth()))
	}
	if got, want := some[0].Error(), "Namespace grove: is too large: 600 KiB of what the mesh reads, 512 is the most"; got != want {
		t.Errorf("problem %q, want %q", got, want)
	}
}
