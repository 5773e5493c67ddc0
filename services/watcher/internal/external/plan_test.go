package external

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weftmesh/weft/services/kit/golden"
	"github.com/weftmesh/weft/services/watcher/internal/dir"
	"github.com/weftmesh/weft/services/watcher/internal/shape"
)

// TestDecide runs every txtar: what there is, and what is to be done.
func TestDecide(t *testing.T) {
	for _, f := range golden.Files(t, "testdata/*.txtar") {
		t.Run(f.Name, func(t *testing.T) {
			f.Want(t, show(t, decide(t, f.Part("in.yaml"))))
		})
	}
}

func decide(t *testing.T, yaml []byte) Plan {
	t.Helper()
	p := dir.Parse(yaml)
	if p.Broken != nil || len(p.Strays) > 0 {
		t.Fatalf("input: %v %v", p.Broken, p.Strays)
	}
	var service *corev1.Service
	var workloads []*shape.ExternalWorkload
	var have []*discoveryv1.EndpointSlice
	unknown := map[string]bool{}
	for _, it := range p.Items {
		switch o := it.Obj.(type) {
		case *corev1.Service:
			service = o
		case *shape.ExternalWorkload:
			workloads = append(workloads, o)
		case *discoveryv1.EndpointSlice:
			if Manages(o) {
				have = append(have, o)
			}
		case *shape.Bad:
			unknown[o.Name] = true
		}
	}
	return Decide(service, workloads, unknown, have)
}

// show writes a plan, a slice a line.
func show(t *testing.T, p Plan) string {
	t.Helper()
	var b strings.Builder
	line := func(done string, list []*discoveryv1.EndpointSlice) {
		for _, es := range list {
			raw, err := json.Marshal(es)
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(&b, "%s %s\n", done, raw)
		}
	}
	line("create", p.Create)
	line("update", p.Update)
	for _, name := range p.Delete {
		fmt.Fprintf(&b, "delete %s\n", name)
	}
	return b.String()
}

// apply carries a plan out on slices in memory.
func apply(have []*discoveryv1.EndpointSlice, p Plan, serial *int) []*discoveryv1.EndpointSlice {
	out := slices.DeleteFunc(slices.Clone(have), func(es *discoveryv1.EndpointSlice) bool { return slices.Contains(p.Delete, es.Name) })
	for _, u := range p.Update {
		for i, es := range out {
			if es.Name == u.Name {
				out[i] = u
			}
		}
	}
	for _, c := range p.Create {
		*serial++
		c.Name = fmt.Sprint(c.GenerateName, *serial)
		out = append(out, c)
	}
	return out
}

// TestManyWorkloads: slices hold no more than 100, each workload is in one of them
// exactly, what stays doesn't move, and after a plan there is no other.
func TestManyWorkloads(t *testing.T) {
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "grove", Name: "plum", UID: "s"},
		Spec:       corev1.ServiceSpec{Selector: map[string]string{"app": "plum"}, Ports: []corev1.ServicePort{{Port: 80}}},
	}
	workload := func(i int) *shape.ExternalWorkload {
		return parse(t, fmt.Sprintf(`{"metadata":{"name":"vm-%03d","namespace":"grove","uid":"u-%d","labels":{"app":"plum"}},
"spec":{"meshTLS":{"identity":"i","serverName":"s"},"ports":[{"port":80}],"workloadIPs":[{"ip":"10.9.%d.%d"}]}}`, i, i, i/250, i%250+1))
	}
	var have []*discoveryv1.EndpointSlice
	serial := 0
	at := map[string]string{}
	for step, span := range [][2]int{{0, 250}, {0, 350}, {120, 350}, {300, 301}, {0, 99}, {0, 0}} {
		var workloads []*shape.ExternalWorkload
		for i := span[0]; i < span[1]; i++ {
			workloads = append(workloads, workload(i))
		}
		p := Decide(service, workloads, nil, have)
		have = apply(have, p, &serial)
		now := map[string]string{}
		for _, es := range have {
			if n := len(es.Endpoints); n == 0 || n > full {
				t.Errorf("step %d: a slice holds %d endpoints", step, n)
			}
			for _, e := range es.Endpoints {
				if now[e.TargetRef.Name] != "" {
					t.Errorf("step %d: %s is in two slices", step, e.TargetRef.Name)
				}
				now[e.TargetRef.Name] = es.Name
			}
		}
		if len(now) != len(workloads) {
			t.Errorf("step %d: %d workloads are in slices, want %d", step, len(now), len(workloads))
		}
		for name, slice := range now {
			if was := at[name]; was != "" && was != slice {
				t.Errorf("step %d: %s moved from %s to %s", step, name, was, slice)
			}
		}
		at = now
		if again := Decide(service, workloads, nil, have); !again.Empty() {
			t.Errorf("step %d: after a plan there is another: %s", step, show(t, again))
		}
	}
}

func parse(t *testing.T, text string) *shape.ExternalWorkload {
	t.Helper()
	w, ok := shape.Decode(shape.ExternalWorkloads, []byte(text)).(*shape.ExternalWorkload)
	if !ok {
		t.Fatalf("not a workload: %s", text)
	}
	return w
}
