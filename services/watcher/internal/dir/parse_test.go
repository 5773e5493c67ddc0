package dir

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weftmesh/weft/services/watcher/internal/shape"
)

func TestParse(t *testing.T) {
	for _, test := range []struct {
		name, in     string
		want, strays []string
		broken       string
	}{
		{name: "nothing", in: "\n# only a comment\n---\n---\n"},
		{name: "null", in: "null\n--- ~\n"},
		{
			name: "byte order mark and line ends", in: "\xef\xbb\xbfapiVersion: v1\r\nkind: Namespace\r\nmetadata:\r\n  name: a\r\n---\r\napiVersion: v1\r\nkind: Namespace\r\nmetadata: {name: b}\r\n",
			want: []string{"Namespace a", "Namespace b"},
		},
		{
			name: "comment on the separator", in: "--- # first\napiVersion: v1\nkind: Namespace\nmetadata: {name: a}\n",
			want: []string{"Namespace a"},
		},
		{
			name: "dashes inside a text", in: "apiVersion: v1\nkind: Namespace\nmetadata:\n  name: a\n  annotations:\n    linkerd.io/x: |\n      ---\n      x\n",
			want: []string{"Namespace a"},
		},
		{name: "default namespace", in: "{apiVersion: v1, kind: Service, metadata: {name: a}}", want: []string{"Service default/a"}},
		{name: "no namespace on a node", in: "{apiVersion: v1, kind: Node, metadata: {name: a, namespace: b}}", want: []string{"Node a"}},
		{name: "not ours", in: "{apiVersion: apps/v1, kind: Deployment, metadata: {name: a}}\n---\n{apiVersion: other.io/v1, kind: Server, metadata: {name: a}}"},
		{
			name: "typed list", in: "{apiVersion: v1, kind: ServiceList, items: [{metadata: {name: a, namespace: x}}, {metadata: {name: b, namespace: x}}]}",
			want: []string{"Service x/a", "Service x/b"},
		},
		{
			name: "list in a list", in: "{apiVersion: v1, kind: List, items: [{apiVersion: v1, kind: List, items: [{apiVersion: v1, kind: Namespace, metadata: {name: a}}]}]}",
			want: []string{"Namespace a"},
		},
		{
			name: "lists too deep", in: strings.Repeat("{kind: List, items: [", 6) + strings.Repeat("]}", 6),
			strays: []string{"document 1: items[0] items[0] items[0] items[0] has lists in lists more than 4 deep"},
		},
		{
			name: "no object", in: "just text\n---\n[1, 2]\n---\n7\n---\n{kind: 7}\n---\n{metadata: {name: a}}",
			strays: []string{
				"document 1: is no Kubernetes object", "document 2: is no Kubernetes object", "document 3: is no Kubernetes object",
				"document 4: is no Kubernetes object", "document 5: has no kind",
			},
		},
		{
			name: "no name", in: "{apiVersion: v1, kind: Pod}\n---\n{apiVersion: v1, kind: Pod, metadata: 7}",
			strays: []string{
				"document 1: Pod has no metadata.name",
				"document 2: Pod without a readable metadata.name: metadata: is a number where an object belongs",
			},
		},
		{
			name: "bad object among good", in: "{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: 7}\n---\n{apiVersion: v1, kind: Pod, metadata: {name: b}}",
			want: []string{"Pod default/a", "Pod default/b"},
		},
		{
			name: "not YAML", in: "{apiVersion: v1, kind: Namespace, metadata: {name: a}}\n---\na: [b\n",
			want: []string{"Namespace a"}, broken: "document 2: yaml: line 1: did not find expected ',' or ']'",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := Parse([]byte(test.in))
			var got []string
			for _, it := range p.Items {
				got = append(got, it.ID.String())
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("objects (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(test.strays, p.Strays); diff != "" {
				t.Errorf("strays (-want +got):\n%s", diff)
			}
			broken := ""
			if p.Broken != nil {
				broken = p.Broken.Error()
			}
			if broken != test.broken {
				t.Errorf("broken %q, want %q", broken, test.broken)
			}
		})
	}
}

func TestParseRefusesWhatIsTooLarge(t *testing.T) {
	if p := Parse(make([]byte, maxFile+1)); p.Broken == nil {
		t.Error("a file of more than 16 MiB was read")
	}
}

// TestAliasBomb: nine levels of nine aliases would be 387 million entries.
func TestAliasBomb(t *testing.T) {
	var b strings.Builder
	b.WriteString("a0: &a0 [x,x,x,x,x,x,x,x,x]\n")
	for i := 1; i < 9; i++ {
		prev := string(rune('0' + i - 1))
		b.WriteString("a" + string(rune('0'+i)) + ": &a" + string(rune('0'+i)) + " [" + strings.TrimSuffix(strings.Repeat("*a"+prev+",", 9), ",") + "]\n")
	}
	if p := Parse([]byte(b.String())); p.Broken == nil {
		t.Error("a bomb of aliases was read")
	}
}

func TestUIDs(t *testing.T) {
	in := "{apiVersion: v1, kind: Pod, metadata: {name: a}}\n---\n{apiVersion: v1, kind: Service, metadata: {name: a}}\n---\n{apiVersion: v1, kind: Pod, metadata: {name: b, uid: given}}"
	one, two := Parse([]byte(in)), Parse([]byte(in))
	seen := make(map[string]bool)
	for i, it := range one.Items {
		uid := string(it.Obj.GetUID())
		if uid != string(two.Items[i].Obj.GetUID()) {
			t.Errorf("uid of %v differs between two readings", it.ID)
		}
		if uid == "" || seen[uid] {
			t.Errorf("uid %q of %v is empty or used twice", uid, it.ID)
		}
		seen[uid] = true
	}
	if got := one.Items[2].Obj.GetUID(); got != "given" {
		t.Errorf("a given uid became %q", got)
	}
}

// FuzzParse: no text makes the loader, or the shaping of what it loads, panic.
func FuzzParse(f *testing.F) {
	for _, s := range []string{
		"", "---", "a: [b", "{apiVersion: v1, kind: List, items: [null, 7, {}]}",
		"{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: [{name: linkerd-proxy, env: [{name: LINKERD2_PROXY_INBOUND_LISTEN_ADDR, value: ':'}], ports: [{containerPort: -1}]}]}, status: {podIPs: [{ip: ''}]}}",
		"{apiVersion: v1, kind: Service, metadata: {name: a}, spec: {selector: {'': ''}, clusterIPs: [null], ports: [{port: 1, targetPort: {}}]}}",
		"{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: a, labels: {kubernetes.io/service-name: b}}, endpoints: [null, {addresses: [null, 'fe80::1%eth0']}], ports: [null]}",
		"{apiVersion: policy.linkerd.io/v1beta3, kind: Server, metadata: {name: a}, spec: {podSelector: {matchExpressions: [null]}, port: 1e99}}",
		"{apiVersion: policy.linkerd.io/v1alpha1, kind: NetworkAuthentication, metadata: {name: a}, spec: {networks: [null]}}",
		"{apiVersion: workload.linkerd.io/v1beta1, kind: ExternalWorkload, metadata: {name: a}, spec: null}",
		"{apiVersion: v1, kind: Pod, metadata: {name: a, deletionTimestamp: x, ownerReferences: [{}]}}",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, it := range Parse(data).Items {
			rows, _, wrong := shape.Rows(it.ID.Kind, it.Obj, it.lookup)
			if wrong != nil && len(rows) > 0 {
				t.Errorf("%v: rows and a problem: %v", it.ID, wrong)
			}
			for _, r := range rows {
				if r.Key == "" || r.Message == nil {
					t.Errorf("%v: empty row %+v", it.ID, r)
				}
			}
		}
	})
}

func (it Item) lookup(shape.ID) metav1.Object { return it.Obj }
