package shape

import (
	"encoding/json"
	"net/netip"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/weftmesh/weft/bus"
	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
)

// FuzzSelector: a selector that is accepted selects the same labels as its row
// does by the row's own rules (complaint D1: NotIn as a copy of In).
func FuzzSelector(f *testing.F) {
	f.Add(`{}`, "app", "plum", "tier", "db")
	f.Add(`{"matchLabels":{"app":"plum"}}`, "app", "plum", "tier", "db")
	f.Add(`{"matchExpressions":[{"key":"env","operator":"NotIn","values":["prod"]}]}`, "env", "prod", "", "")
	f.Add(`{"matchExpressions":[{"key":"env","operator":"NotIn","values":["dev"]},{"key":"app","operator":"Exists"}]}`, "env", "prod", "app", "")
	f.Add(`{"matchExpressions":[{"key":"env","operator":"DoesNotExist"},{"key":"a","operator":"In","values":["b","c"]}]}`, "a", "c", "x", "y")
	f.Add(`{"matchExpressions":[null,{"key":"a","operator":"in"}]}`, "a", "c", "x", "y")
	f.Fuzz(func(t *testing.T, text, k1, v1, k2, v2 string) {
		var s metav1.LabelSelector
		if json.Unmarshal([]byte(text), &s) != nil {
			return
		}
		row, wrong := selector(Servers, &Server{}, "spec.podSelector", &s)
		want, err := metav1.LabelSelectorAsSelector(&s)
		if (err != nil) != (wrong != nil) {
			t.Fatalf("problem %v, but Kubernetes says %v", wrong, err)
		}
		if wrong != nil {
			return
		}
		set := map[string]string{k1: v1, k2: v2}
		if got := matches(row, set); got != want.Matches(labels.Set(set)) {
			t.Errorf("row %v matches %v: %t, Kubernetes says the opposite", row, set, got)
		}
	})
}

// matches is how a reader is to understand a row.
func matches(s *busv1.Selector, set map[string]string) bool {
	for k, v := range s.GetMatchLabels() {
		if got, ok := set[k]; !ok || got != v {
			return false
		}
	}
	for _, r := range s.GetRequirements() {
		got, ok := set[r.GetKey()]
		in := false
		for _, v := range r.GetValues() {
			in = in || ok && v == got
		}
		switch r.GetOperator() {
		case "In":
			ok = in
		case "NotIn":
			ok = !in
		case "Exists":
		case "DoesNotExist":
			ok = !ok
		default:
			return false
		}
		if !ok {
			return false
		}
	}
	return true
}

// FuzzPort: no port text gives a number outside a port's range.
func FuzzPort(f *testing.F) {
	for _, s := range []string{"80", "0", "-1", "65536", `"http"`, `""`, "null", "1e3", "99999999999", "[]", `"80"`} {
		f.Add(s, "0.0.0.0:4143")
	}
	for _, s := range []string{"[::]:4143", ":4143", "4143", "localhost:1", "0.0.0.0:99999", "0.0.0.0:", "[::1%eth0]:1"} {
		f.Add("80", s)
	}
	f.Fuzz(func(t *testing.T, text, addr string) {
		if n := listenPort(addr); n > 65535 {
			t.Errorf("listenPort(%q) = %d", addr, n)
		}
		var port intstr.IntOrString
		if json.Unmarshal([]byte(text), &port) != nil {
			return
		}
		s := &Server{}
		s.Name, s.Namespace = "a", "b"
		s.Spec.PodSelector, s.Spec.Port = &metav1.LabelSelector{}, port
		rows, _, wrong := serverRows(s)
		if wrong != nil {
			return
		}
		row := rows[0].Message.(*busv1.Server)
		if (row.GetPort() == 0) == (row.GetPortName() == "") || row.GetPort() > 65535 {
			t.Errorf("port %s became number %d and name %q", text, row.GetPort(), row.GetPortName())
		}
	})
}

// FuzzNetwork: what is accepted is a CIDR that readers can parse.
func FuzzNetwork(f *testing.F) {
	for _, s := range []string{"10.0.0.0/8", "10.0.0.1", "fd00::/8", "::1", "fe80::1%eth0", "10.0.0.0/33", "", "/", "10.1.2.3/08", "::ffff:10.0.0.1/100"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		text, ok := network(s)
		if !ok {
			return
		}
		if _, err := netip.ParsePrefix(text); err != nil {
			t.Errorf("network(%q) = %q, which is no CIDR: %v", s, text, err)
		}
	})
}

// FuzzMaker: no key of the log makes it panic, and the keys that shape makes
// lead back to their object.
func FuzzMaker(f *testing.F) {
	f.Add("grove", "web", "10.0.0.1")
	f.Add("", "/", "%")
	f.Add("derived,ipv4", "derived,ipv6", "::1")
	f.Fuzz(func(t *testing.T, a, b, c string) {
		for _, info := range bus.Tables {
			for _, key := range []string{a, bus.Key(a), bus.Key(a, b), bus.Key(a, b, c), bus.Key(a, b, c, a)} {
				Maker(info.Table, key)
			}
		}
		if id, ok := Maker(busv1.Table_TABLE_SERVERS, bus.Key(a, b)); !ok || id != (ID{Servers, a, b}) {
			t.Errorf("Maker(servers) = %v, %t", id, ok)
		}
		if id, ok := Maker(busv1.Table_TABLE_WORKLOADS, WorkloadKey(busv1.Workload_KIND_EXTERNAL, a, b)); !ok || id != (ID{ExternalWorkloads, a, b}) {
			t.Errorf("Maker(workloads) = %v, %t", id, ok)
		}
		if strings.Contains(b, ",") {
			return
		}
		if id, ok := Maker(busv1.Table_TABLE_ENDPOINTS, bus.Key(a, c, b, "10.0.0.1")); !ok || id != (ID{EndpointSlice, a, b}) {
			t.Errorf("Maker(endpoints) = %v, %t", id, ok)
		}
	})
}

// FuzzRows: whatever an object's text is, it makes rows or a problem, rows of its
// own tables under keys that lead back to it, and the same each time.
func FuzzRows(f *testing.F) {
	meta := `{"metadata":{"name":"a","namespace":"b"},"spec":`
	for i := range Kinds {
		f.Add(i, meta+`{}}`)
		f.Add(i, meta+`[]}`)
		f.Add(i, `{"metadata":{"name":"a"},"spec":null,"status":{"parents":[1]}}`)
	}
	for _, spec := range []string{
		`{"rules":[{"matches":[{"path":{}},null],"filters":[{"type":"RequestMirror","requestMirror":{"fraction":{}}}],"backendRefs":[{"weight":-1}]}],"parentRefs":[null]}`,
		`{"routes":[{"condition":{"all":[null,{"not":{"any":[]}}]},"responseClasses":[{"condition":{"not":{"status":{"min":1e9}}}}]}],"dstOverrides":[{"weight":"1e99"}]}`,
		`{"backends":[{"weight":1.5},{"weight":true}]}`,
		`{"networks":[{"cidr":"x","except":[""]}],"client":{"networks":null,"meshTLS":{}},"overrides":[{"requestsPerSecond":9223372036854775807}]}`,
	} {
		for i := range Kinds {
			f.Add(i, meta+spec+"}")
		}
	}
	f.Fuzz(func(t *testing.T, n int, text string) {
		info := Kinds[uint(n)%uint(len(Kinds))]
		obj := Decode(info.Kind, []byte(text))
		rows, _, wrong := Rows(info.Kind, obj, nobody)
		if wrong != nil && len(rows) > 0 {
			t.Fatalf("%v and %d rows", wrong, len(rows))
		}
		again, _, _ := Rows(info.Kind, obj, nobody)
		for i, r := range rows {
			if id, ok := Maker(r.Table, r.Key); ok && info.Custom && id != IDOf(info.Kind, obj) {
				t.Errorf("row %s of %v leads back to %v", r.Key, IDOf(info.Kind, obj), id)
			}
			if string(bus.Encode(r.Message)) != string(bus.Encode(again[i].Message)) {
				t.Errorf("%s: two rows of one object", r.Key)
			}
		}
	})
}
