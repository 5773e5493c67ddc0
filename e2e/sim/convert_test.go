package sim

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/linkerd/linkerd2-proxy-api/go/inbound"
	"github.com/linkerd/linkerd2-proxy-api/go/net"
	"github.com/linkerd/linkerd2-proxy-api/go/outbound"
	"golang.org/x/tools/txtar"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"sigs.k8s.io/yaml"

	"github.com/weftmesh/weft/bus"
	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
	policy "github.com/weftmesh/weft/services/policy/simtest"
	"github.com/weftmesh/weft/services/watcher/candidate"
)

// around is what a fuzzed object meets: two namespaces with the same things in them.
const around = `
{apiVersion: v1, kind: Service, metadata: {name: plum, namespace: NS}, spec: {clusterIP: IP.1, clusterIPs: [IP.1], ports: [{name: http, port: 80}, {name: db, port: 5432, appProtocol: tcp}, {name: tls, port: 443}]}}
---
{apiVersion: v1, kind: Service, metadata: {name: pear, namespace: NS}, spec: {clusterIP: IP.2, clusterIPs: [IP.2], ports: [{port: 80}]}}
---
{apiVersion: policy.linkerd.io/v1beta3, kind: Server, metadata: {name: plum, namespace: NS}, spec: {podSelector: {}, port: 80, proxyProtocol: HTTP/1}}
---
{apiVersion: policy.linkerd.io/v1beta3, kind: Server, metadata: {name: calls, namespace: NS}, spec: {podSelector: {}, port: http, proxyProtocol: gRPC}}
---
{apiVersion: policy.linkerd.io/v1alpha1, kind: MeshTLSAuthentication, metadata: {name: all, namespace: NS}, spec: {identities: ["*"]}}
---
{apiVersion: policy.linkerd.io/v1alpha1, kind: EgressNetwork, metadata: {name: out, namespace: NS}, spec: {trafficPolicy: Allow, networks: [{cidr: 192.0.2.0/24}]}}
---
{apiVersion: gateway.networking.k8s.io/v1, kind: HTTPRoute, metadata: {name: gate, namespace: NS}, spec: {parentRefs: [{group: "", kind: Service, name: plum, port: 80}], rules: [{backendRefs: [{name: pear, port: 80}]}]}}
---
{apiVersion: policy.linkerd.io/v1beta3, kind: HTTPRoute, metadata: {name: in, namespace: NS}, spec: {parentRefs: [{group: policy.linkerd.io, kind: Server, name: plum}], rules: [{matches: [{path: {type: Exact, value: /a}}]}]}}
`

// mine is the fuzzed object's namespace, far that of its neighbours.
const mine, far = "grove", "far"

// objectsIn reads every object of a YAML stream as JSON.
func objectsIn(t testing.TB, stream string) (all [][]byte) {
	t.Helper()
	for doc := range strings.SplitSeq(stream, "\n---\n") {
		raw, err := yaml.YAMLToJSON([]byte(doc))
		if err != nil || string(raw) == "null" {
			continue // some goldens are about what cannot be read
		}
		all = append(all, raw)
	}
	return all
}

func surroundings(t testing.TB) (rows []bus.Change) {
	t.Helper()
	t.Helper()
	for i, ns := range []string{mine, far} {
		text := strings.NewReplacer("NS", ns, "IP", fmt.Sprint("10.2.", i)).Replace(around)
		for _, raw := range objectsIn(t, text) {
			o, err := candidate.Read(raw, ns)
			if err != nil {
				t.Fatalf("%s: %v", raw, err)
			}
			rows = append(rows, o.Rows...)
		}
		rows = append(rows,
			bus.Change{Table: busv1.Table_TABLE_TEMPLATES, Key: bus.Key(ns, "t"), Value: bus.Encode(&busv1.Template{
				Namespace: ns, ControlPlaneNamespace: "linkerd", Labels: map[string]string{"app": "plum"},
				Ports: []*busv1.Port{{Name: "http", Port: 8080, Protocol: "TCP"}},
			})},
			bus.Change{Table: busv1.Table_TABLE_WORKLOADS, Key: bus.Key("pod", ns, "p"), Value: bus.Encode(&busv1.Workload{
				Kind: busv1.Workload_KIND_POD, Namespace: ns, Name: "p", Uid: ns, Template: bus.Key(ns, "t"), Ips: []string{fmt.Sprintf("10.1.%d.1", i)},
			})})
	}
	return rows
}

// told is all that proxies of a namespace are told.
type told struct {
	in  map[uint32]*inbound.Server
	out map[string]*outbound.OutboundPolicy
}

func toldBy(t *testing.T, d *policy.Desk, ns string) told {
	t.Helper()
	all := told{map[uint32]*inbound.Server{}, map[string]*outbound.OutboundPolicy{}}
	for _, port := range []uint32{80, 8080, 4191, 65535} {
		s, err := d.Inbound.GetPort(t.Context(), &inbound.PortSpec{Workload: ns + ":p", Port: port})
		if err != nil {
			t.Fatalf("%s port %d: %v", ns, port, err)
		}
		all.in[port] = s
	}
	ask := func(name string, spec *outbound.TrafficSpec) {
		spec.SourceWorkload = ns + ":p"
		p, err := d.Outbound.Get(t.Context(), spec)
		if err != nil && status.Code(err) != codes.NotFound {
			t.Fatalf("%s asks for %s: %v", ns, name, err)
		}
		all.out[name] = p
		if _, err := proto.Marshal(p); err != nil {
			t.Fatalf("%s of %s: %v", name, ns, err)
		}
	}
	for _, name := range []string{"plum." + ns + ".svc:80", "plum." + ns + ".svc:5432", "plum." + ns + ".svc:443", "pear." + ns + ".svc:80", "pear." + ns + ".svc:81"} {
		ask(name, &outbound.TrafficSpec{Target: &outbound.TrafficSpec_Authority{Authority: name}})
	}
	for _, ip := range []uint32{192<<24 | 2<<8 | 9, 8<<24 | 8} { // 192.0.2.9, 8.0.0.8
		ask(fmt.Sprint(ip), &outbound.TrafficSpec{Target: &outbound.TrafficSpec_Addr{Addr: &net.TcpAddress{
			Ip: &net.IPAddress{Ip: &net.IPAddress_Ipv4{Ipv4: ip}}, Port: 443,
		}}})
	}
	return all
}

// differ gives what differs; comparing in words is slow, and rarely needed.
func differ(was, is told) string {
	same := maps.EqualFunc(was.in, is.in, func(a, b *inbound.Server) bool { return proto.Equal(a, b) }) &&
		maps.EqualFunc(was.out, is.out, func(a, b *outbound.OutboundPolicy) bool { return proto.Equal(a, b) })
	if same {
		return ""
	}
	return cmp.Diff(was.in, is.in, protocmp.Transform()) + cmp.Diff(was.out, is.out, protocmp.Transform())
}

// opens says whether an object of such a kind may let somebody in by itself.
func opens(kind string) bool {
	return slices.Contains([]string{"Server", "AuthorizationPolicy", "ServerAuthorization"}, kind)
}

// odd are values where nobody expects them.
var odd = []string{
	`null`, `[]`, `{}`, `""`, `-1`, `0`, `1e99`, `70000`, `"*"`, `[null]`, `[{}]`, `"(("`, `"/"`, `"9223372036854775808"`, `"\u0000"`,
	`"0.0.0.0/0"`, `true`, `"Service"`, `"Server"`, `"plum"`, `"far"`, `"policy.linkerd.io"`, `4294967376`, `"1ms"`, `"-0s"`,
}

// grafted puts a value in the place of one node of an object, in the order of
// depth and names; bytes that are changed at random rarely stay an object.
func grafted(raw []byte, node uint16, value string) []byte {
	var root, graft any
	if json.Unmarshal([]byte(value), &graft) != nil || json.Unmarshal(raw, &root) != nil {
		return raw
	}
	var count int
	var nodes func(v any) any
	nodes = func(v any) any {
		if count++; count == int(node) {
			return graft
		}
		switch v := v.(type) {
		case []any:
			for i := range v {
				v[i] = nodes(v[i])
			}
		case map[string]any:
			for _, k := range slices.Sorted(maps.Keys(v)) {
				v[k] = nodes(v[k])
			}
		}
		return v
	}
	out, err := json.Marshal(nodes(root))
	if err != nil {
		return raw
	}
	return out
}

// FuzzObject applies an object of any kind and any text, as it comes with the
// webhook off: from its JSON through the watcher's rows and policy's tables to
// what proxies are told. Nothing panics, every answer can be given, kinds that
// authorize nobody open nothing, the neighbours' namespace is told what it was
// told before, and once the object is gone everybody is.
func FuzzObject(f *testing.F) {
	files, err := filepath.Glob("../../services/watcher/internal/shape/testdata/rows/*.txtar")
	if err != nil || len(files) == 0 {
		f.Fatalf("seeds: %v, %v", files, err)
	}
	seen, n := map[string]bool{}, 0
	add := func(raw []byte) {
		o, err := candidate.Read(raw, mine)
		if errors.Is(err, candidate.ErrOther) {
			return
		}
		seen[o.Kind] = seen[o.Kind] || len(o.Rows) > 0
		f.Add(raw, uint16(0), "")
		f.Add(raw, uint16(7*n), odd[n%len(odd)])
		n++
	}
	for _, file := range files {
		archive, err := txtar.ParseFile(file)
		if err != nil {
			f.Fatal(err)
		}
		for _, section := range archive.Files {
			if section.Name == "in.yaml" {
				for _, raw := range objectsIn(f, string(section.Data)) {
					add(raw)
				}
			}
		}
	}
	for _, raw := range objectsIn(f, strings.ReplaceAll(strings.ReplaceAll(around, "NS", mine), "IP", "10.2.0")) {
		add(raw)
	}
	for _, kind := range candidate.Kinds() {
		if !seen[kind] {
			f.Errorf("there is no seed of kind %s", kind)
		}
	}
	rows := surroundings(f)
	f.Fuzz(func(t *testing.T, raw []byte, node uint16, value string) {
		converted(t, rows, grafted(raw, node, value))
	})
}

// converted applies one object, and takes it away.
func converted(t *testing.T, rows []bus.Change, raw []byte) {
	t.Helper()
	o, err := candidate.Read(raw, mine)
	if err != nil || len(o.Rows) == 0 || o.Namespace == far || slices.ContainsFunc(rows, func(c bus.Change) bool { return c.Key == o.Rows[0].Key && c.Table == o.Rows[0].Table }) {
		return // skipped and named; or it takes the place of what is around
	}
	d := policy.NewDesk(rows...)
	before, neighbours := toldBy(t, d, mine), toldBy(t, d, far)
	d.Apply(o.Rows...)
	is := toldBy(t, d, mine)
	for port, s := range is.in {
		if len(s.GetAuthorizations()) > 0 && !opens(o.Kind) {
			t.Errorf("%s opens port %d to %v", o.Kind, port, s.GetAuthorizations())
		}
	}
	// Networks in the namespace of all, and Services that claim an address, are about everybody.
	if o.Kind != "Service" && o.Namespace != "linkerd-egress" {
		if diff := differ(neighbours, toldBy(t, d, far)); diff != "" {
			t.Errorf("%s %s/%s harms its neighbours (-before +after):\n%s", o.Kind, o.Namespace, o.Name, diff)
		}
	}
	if err := d.Judge(); err != nil {
		t.Error(err)
	}
	gone, err := candidate.Gone(o.Group, o.Kind, o.Namespace, o.Name)
	if err != nil || len(gone.Rows) != 1 || gone.Rows[0].Key != o.Rows[0].Key {
		t.Fatalf("%+v, %v: not the row that came", gone, err)
	}
	d.Apply(gone.Rows...)
	if diff := differ(before, toldBy(t, d, mine)); diff != "" {
		t.Errorf("%s is gone and still shows (-before +after):\n%s", o.Kind, diff)
	}
}
