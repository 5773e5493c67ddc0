package derive_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"

	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
	"github.com/weftmesh/weft/services/kit/golden"
	"github.com/weftmesh/weft/services/policy/internal/derive"
	"github.com/weftmesh/weft/services/policy/internal/derive/egress"
	"github.com/weftmesh/weft/services/policy/internal/derive/outbound"
	"github.com/weftmesh/weft/services/policy/internal/derive/route"
)

// TestGolden answers the questions of testdata/*/*.txtar. A file holds rows as
// protobuf text, settings of the cluster in a section of that name, and
// sections "ask …" whose body is the whole answer.
func TestGolden(t *testing.T) {
	for _, f := range golden.Files(t, "testdata/*/*.txtar") {
		t.Run(f.Name, func(t *testing.T) { answers(t, f) })
	}
}

func answers(t *testing.T, f *golden.File) {
	t.Helper()
	w := newWorld(t, f.Archive)
	asked := 0
	for _, section := range f.Files {
		if question, ok := strings.CutPrefix(section.Name, "ask "); ok {
			asked++
			f.Is(t, section.Name, w.ask(t, question))
		}
	}
	if asked == 0 {
		t.Errorf("%s asks nothing", f.Path)
	}
}

// world is the rows of one golden file.
type world struct {
	cluster   derive.Cluster
	templates map[string]*busv1.Template
	workloads map[string]*busv1.Workload
	services  map[string]*busv1.Service
	routes    []*route.Route
	egress    map[string]*egress.Network
	grants    map[string][]*busv1.ReferenceGrant
	servers   []*busv1.Server
	policies  []*busv1.AuthorizationPolicy
	server    []*busv1.ServerAuthorization
	limits    []*busv1.RateLimit
	meshTLS   map[string]*busv1.MeshTLSAuthentication
	networks  map[string]*busv1.NetworkAuthentication
}

func (w *world) MeshTLS(ns, name string) *busv1.MeshTLSAuthentication { return w.meshTLS[ns+"/"+name] }

func (w *world) Network(ns, name string) *busv1.NetworkAuthentication { return w.networks[ns+"/"+name] }

func testCluster(t testing.TB) derive.Cluster {
	t.Helper()
	networks, err := derive.ParseNetworks([]string{"10.0.0.0/8", "100.64.0.0/10", "172.16.0.0/12", "192.168.0.0/16"})
	if err != nil {
		t.Fatal(err)
	}
	opaque, err := derive.ParsePorts("25,587,3306,4444,5432,6379,9300,11211")
	if err != nil {
		t.Fatal(err)
	}
	return derive.Cluster{
		Networks:              networks,
		ProbeNetworks:         derive.AllNetworks(),
		IdentityDomain:        "cluster.local",
		Domain:                "cluster.local",
		ControlPlaneNamespace: "linkerd",
		DefaultPolicy:         derive.AllUnauthenticated,
		OpaquePorts:           opaque,
	}
}

func newWorld(t *testing.T, archive *txtar.Archive) *world {
	t.Helper()
	w := &world{
		cluster:   testCluster(t),
		templates: map[string]*busv1.Template{},
		workloads: map[string]*busv1.Workload{},
		services:  map[string]*busv1.Service{},
		egress:    map[string]*egress.Network{},
		grants:    map[string][]*busv1.ReferenceGrant{},
		meshTLS:   map[string]*busv1.MeshTLSAuthentication{},
		networks:  map[string]*busv1.NetworkAuthentication{},
	}
	for _, section := range archive.Files {
		kind, key, _ := strings.Cut(section.Name, " ")
		switch kind {
		case "ask":
		case "cluster":
			w.configure(t, string(section.Data))
		case "template":
			w.templates[key] = read(t, section, &busv1.Template{})
		case "workload":
			w.workloads[key] = read(t, section, &busv1.Workload{})
		case "service":
			w.services[key] = read(t, section, &busv1.Service{})
		case "route":
			w.routes = append(w.routes, route.New(read(t, section, &busv1.Route{})))
		case "egress":
			w.egress[key] = egress.New(w.cluster, read(t, section, &busv1.EgressNetwork{}))
		case "grant":
			ns, _, _ := strings.Cut(key, "/")
			w.grants[ns] = append(w.grants[ns], read(t, section, &busv1.ReferenceGrant{}))
		case "server":
			w.servers = append(w.servers, read(t, section, &busv1.Server{}))
		case "policy":
			w.policies = append(w.policies, read(t, section, &busv1.AuthorizationPolicy{}))
		case "authorization":
			w.server = append(w.server, read(t, section, &busv1.ServerAuthorization{}))
		case "limit":
			w.limits = append(w.limits, read(t, section, &busv1.RateLimit{}))
		case "meshtls":
			w.meshTLS[key] = read(t, section, &busv1.MeshTLSAuthentication{})
		case "network":
			w.networks[key] = read(t, section, &busv1.NetworkAuthentication{})
		default:
			t.Fatalf("section %q", section.Name)
		}
	}
	return w
}

func read[M proto.Message](t *testing.T, section txtar.File, m M) M {
	t.Helper()
	if err := prototext.Unmarshal(section.Data, m); err != nil {
		t.Fatalf("%s: %v", section.Name, err)
	}
	return m
}

// configure reads lines "name value", the names being those of the flags.
func (w *world) configure(t *testing.T, settings string) {
	t.Helper()
	for line := range strings.Lines(settings) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		var err error
		switch name {
		case "default-policy":
			w.cluster.DefaultPolicy, err = derive.ParseDefaultPolicy(value)
		case "probe-networks":
			w.cluster.ProbeNetworks, err = derive.ParseNetworks(strings.Split(value, ","))
		case "allow-l5d-request-headers":
			w.cluster.AllowHeaders, err = strconv.ParseBool(value)
		case "require-reference-grants":
			w.cluster.RequireGrants, err = strconv.ParseBool(value)
		default:
			err = fmt.Errorf("setting %q", name)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// ask answers "pod|external <namespace>/<name> <port>", "service
// <namespace>/<name> <port> [from <namespace>] [complete]", "egress <address>
// <port> from <namespace>", "undefined …" and "fallback <address>:<port>".
func (w *world) ask(t *testing.T, question string) string {
	t.Helper()
	words := strings.Fields(question)
	if words[0] == "fallback" {
		return render(t, outbound.Fallback(netip.MustParseAddrPort(words[1])))
	}
	port, err := derive.ParsePort(words[2])
	if err != nil {
		t.Fatal(err)
	}
	ns, name, _ := strings.Cut(words[1], "/")
	target := derive.ServicePort{Namespace: ns, Name: name, Port: port}
	switch words[0] {
	case "pod", "external":
		return w.inbound(t, words[0]+"/"+words[1], ns, port)
	case "undefined":
		return render(t, outbound.UndefinedPort(target))
	case "service":
		return w.service(t, target, words[3:])
	case "egress":
		return w.leave(t, words[1], port, words[3:])
	}
	t.Fatalf("question %q", question)
	return ""
}

func complaints(problems []string) string {
	var b strings.Builder
	for _, p := range problems {
		b.WriteString("problem: " + p + "\n")
	}
	return b.String()
}

// render writes an answer as JSON that people can read: addresses as text.
func render(t *testing.T, m proto.Message) string {
	t.Helper()
	raw, err := protojson.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	var v any
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		t.Fatal(err)
	}
	out, err := json.MarshalIndent(readable(v), "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(out) + "\n"
}

func readable(v any) any {
	switch v := v.(type) {
	case []any:
		for i := range v {
			v[i] = readable(v[i])
		}
	case map[string]any:
		if ip, ok := v["ip"].(map[string]any); ok {
			prefix := "0"
			if n, ok := v["prefixLen"].(json.Number); ok {
				prefix = n.String()
			}
			if port, ok := v["port"]; ok {
				return fmt.Sprintf("%s:%v", address(ip), port)
			}
			return address(ip) + "/" + prefix
		}
		for k := range v {
			v[k] = readable(v[k])
		}
	}
	return v
}

func address(ip map[string]any) string {
	number := func(v any) uint64 {
		n, _ := strconv.ParseUint(fmt.Sprint(v), 10, 64)
		return n
	}
	if v6, ok := ip["ipv6"].(map[string]any); ok {
		var b [16]byte
		for i := range 8 {
			b[i] = byte(number(v6["first"]) >> (56 - 8*i))
			b[8+i] = byte(number(v6["last"]) >> (56 - 8*i))
		}
		return netip.AddrFrom16(b).String()
	}
	n := number(ip["ipv4"])
	return netip.AddrFrom4([4]byte{byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)}).String()
}
