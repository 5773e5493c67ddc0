package status

import (
	"bytes"
	"encoding/json"
	"maps"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/prototext"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
	"github.com/weftmesh/weft/services/kit/golden"
	"github.com/weftmesh/weft/services/watcher/internal/dir"
	"github.com/weftmesh/weft/services/watcher/internal/shape"
)

var now = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// TestMerge runs every txtar: an object as it is, the status that is wanted, how
// many replicas serve it, and the patch to send.
func TestMerge(t *testing.T) {
	for _, f := range golden.Files(t, "testdata/merge/*.txtar") {
		t.Run(f.Name, func(t *testing.T) {
			obj, wanted, served := parse(t, f.Part("object.yaml")), new(busv1.Status), 0
			if err := prototext.Unmarshal(f.Part("wanted"), wanted); err != nil {
				t.Fatal(err)
			}
			if n := strings.TrimSpace(string(f.Part("served"))); n != "" {
				var err error
				if served, err = strconv.Atoi(n); err != nil {
					t.Fatal(err)
				}
			}
			patch, err := merge(obj, wanted, served, now)
			if err != nil {
				t.Fatal(err)
			}
			var got bytes.Buffer
			if patch != nil {
				if err := json.Indent(&got, patch, "", " "); err != nil {
					t.Fatal(err)
				}
				got.WriteByte('\n')
			}
			f.Is(t, "patch", got.String())
			if patch == nil {
				return
			}
			if again, err := merge(patched(t, obj, patch), wanted, served, now.Add(time.Hour)); again != nil || err != nil {
				t.Errorf("after the patch there is another one: %s, %v", again, err)
			}
		})
	}
}

func parse(t *testing.T, yaml []byte) metav1.Object {
	t.Helper()
	p := dir.Parse(yaml)
	if p.Broken != nil || len(p.Items) != 1 {
		t.Fatalf("%d objects: %v %v", len(p.Items), p.Broken, p.Strays)
	}
	return p.Items[0].Obj
}

// patched is obj with the status that a patch gives it.
func patched(t *testing.T, obj metav1.Object, patch []byte) metav1.Object {
	t.Helper()
	var p struct {
		Status map[string]json.RawMessage `json:"status"`
	}
	if err := json.Unmarshal(patch, &p); err != nil {
		t.Fatal(err)
	}
	status := map[string]json.RawMessage{}
	raw, _ := shape.StatusOf(obj)
	if json.Unmarshal(raw, &status) != nil || status == nil {
		status = map[string]json.RawMessage{}
	}
	maps.Copy(status, p.Status)
	raw, err := json.Marshal(status)
	if err != nil {
		t.Fatal(err)
	}
	switch o := obj.(type) {
	case *shape.HTTPRoute:
		o.Status = raw
	case *shape.GRPCRoute:
		o.Status = raw
	case *shape.PlainRoute:
		o.Status = raw
	case *shape.EgressNetwork:
		o.Status = raw
	case *shape.RateLimit:
		o.Status = raw
	}
	return obj
}

// FuzzMerge: whatever a status holds, what comes out is as wanted, and what others
// wrote is in it.
func FuzzMerge(f *testing.F) {
	for _, s := range []string{
		``, `{}`, `null`, `{"parents":null}`, `{"parents":[{}]}`, `{"parents":[{"controllerName":"a"},1,null]}`,
		`{"parents":[{"controllerName":"linkerd.io/policy-controller","parentRef":{"group":"","kind":"Service","name":"plum"},"conditions":[{"type":"Accepted","status":"True","observedGeneration":1}]}]}`,
		`{"parents":[{"controllerName":"linkerd.io/policy-controller","conditions":7}]}`,
	} {
		f.Add([]byte(s), 1)
	}
	f.Fuzz(func(t *testing.T, status []byte, served int) {
		if len(status) > 0 && !json.Valid(status) {
			return
		}
		obj := &shape.HTTPRoute{Status: status}
		wanted := &busv1.Status{Generation: 1, Parents: []*busv1.ParentStatus{{
			ParentKind: "Service", ParentName: "plum", Conditions: []*busv1.Condition{{Type: "Accepted", Holds: true, Reason: "Accepted"}},
		}}}
		patch, err := merge(obj, wanted, served, now)
		if err != nil {
			t.Fatal(err)
		}
		if patch == nil {
			return
		}
		if again, err := merge(patched(t, obj, patch), wanted, served, now); again != nil || err != nil {
			t.Errorf("status %s, patch %s: then %s, %v", status, patch, again, err)
		}
	})
}
