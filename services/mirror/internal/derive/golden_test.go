package derive_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"sigs.k8s.io/yaml"

	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
	"github.com/weftmesh/weft/services/kit/golden"
	"github.com/weftmesh/weft/services/mirror/internal/derive"
)

// Each file holds a link, the other cluster's rows by table, and the copies
// that they must become. A case is derived a second time from shuffled rows:
// order must not matter.
func TestMirrors(t *testing.T) {
	for _, f := range golden.Files(t, "testdata/*.txtar") {
		t.Run(f.Name, func(t *testing.T) {
			link, tables := read(t, f.Archive)
			got := render(t, tables, link)
			for _, eps := range tables.Endpoints {
				rand.Shuffle(len(eps), func(i, j int) { eps[i], eps[j] = eps[j], eps[i] })
			}
			slices.Reverse(tables.Services)
			if diff := cmp.Diff(got, render(t, tables, link)); diff != "" {
				t.Errorf("another order of rows gives something else:\n%s", diff)
			}
			f.Want(t, got)
		})
	}
}

func read(t *testing.T, a *txtar.Archive) (derive.Link, derive.Tables) {
	t.Helper()
	link := derive.Link{Cluster: "east", Domain: "cluster.local", TrustDomain: "td.example"}
	tables := derive.Tables{
		Endpoints: map[string][]*busv1.Endpoint{},
		Workloads: map[string]*busv1.Workload{},
		Templates: map[string]*busv1.Template{},
	}
	for _, f := range a.Files {
		switch f.Name {
		case "gateway":
			var g struct {
				Addresses []netip.Addr
				Port      uint16
				Identity  string
				Dead      bool
			}
			if err := yaml.Unmarshal(f.Data, &g); err != nil {
				t.Fatal(err)
			}
			link.Gateway = derive.Gateway{Addresses: g.Addresses, Port: g.Port, Identity: g.Identity, Dead: g.Dead}
		case "services":
			tables.Services = rows(t, f.Data, func() *busv1.Service { return &busv1.Service{} })
		case "endpoints":
			for _, e := range rows(t, f.Data, func() *busv1.Endpoint { return &busv1.Endpoint{} }) {
				key := e.GetNamespace() + "/" + e.GetService()
				tables.Endpoints[key] = append(tables.Endpoints[key], e)
			}
		case "workloads":
			for _, w := range rows(t, f.Data, func() *busv1.Workload { return &busv1.Workload{} }) {
				tables.Workloads[w.GetNamespace()+"/"+w.GetName()] = w
			}
		case "templates":
			for i, tmpl := range rows(t, f.Data, func() *busv1.Template { return &busv1.Template{} }) {
				tables.Templates[fmt.Sprint("t", i)] = tmpl
			}
		}
	}
	return link, tables
}

// rows reads a YAML list of messages.
func rows[M proto.Message](t *testing.T, b []byte, make func() M) []M {
	t.Helper()
	var list []json.RawMessage
	if err := yaml.Unmarshal(b, &list); err != nil {
		t.Fatal(err)
	}
	var out []M
	for _, raw := range list {
		m := make()
		if err := protojson.Unmarshal(raw, m); err != nil {
			t.Fatal(err)
		}
		out = append(out, m)
	}
	return out
}

// render writes copies shortly: what matters of each object on a few lines.
func render(t *testing.T, tables derive.Tables, link derive.Link) string {
	t.Helper()
	mirrors, problems := derive.Mirrors(tables, link)
	var b strings.Builder
	for _, m := range mirrors {
		s := m.Service
		fmt.Fprintf(&b, "service %s\n", m.Key())
		section(&b, "label", s.Labels)
		section(&b, "annotation", s.Annotations)
		for _, p := range s.Spec.Ports {
			fmt.Fprintf(&b, "  port %q %d %s -> %s\n", p.Name, p.Port, p.Protocol, p.TargetPort.String())
		}
		for _, es := range m.Slices {
			fmt.Fprintf(&b, "  slice %s %s\n", es.Name, es.AddressType)
			if es.Namespace != s.Namespace || es.Labels["kubernetes.io/service-name"] != s.Name || es.Labels[derive.LabelCluster] != link.Cluster {
				t.Errorf("slice %s has labels %v", es.Name, es.Labels)
			}
			section(&b, "  annotation", es.Annotations)
			for _, p := range es.Ports {
				fmt.Fprintf(&b, "    port %q %d %s\n", *p.Name, *p.Port, *p.Protocol)
			}
			for _, e := range es.Endpoints {
				host := ""
				if e.Hostname != nil {
					host = " " + *e.Hostname
				}
				if !*e.Conditions.Ready {
					host += " not ready"
				}
				fmt.Fprintf(&b, "    %s%s\n", e.Addresses[0], host)
			}
		}
	}
	for _, p := range problems {
		fmt.Fprintf(&b, "problem %s: %s\n", p.Service, p.Reason)
	}
	return b.String()
}

func section(b *strings.Builder, what string, m map[string]string) {
	var keys []string
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	for _, k := range keys {
		fmt.Fprintf(b, "  %s %s=%s\n", what, k, m[k])
	}
}

func ExampleMirrors() {
	mirrors, _ := derive.Mirrors(derive.Tables{Services: []*busv1.Service{{
		Namespace: "pottery", Name: "kiln", Ports: []*busv1.ServicePort{{Port: 80}},
		Labels: map[string]string{derive.LabelExported: "true"},
	}}}, derive.Link{Cluster: "east", Domain: "cluster.local"})
	fmt.Println(mirrors[0].Key(), mirrors[0].Service.Annotations[derive.AnnotationRemote])
	// Output: pottery/kiln-east kiln.pottery.svc.cluster.local
}

// A service with many endpoints is cut into slices that Kubernetes accepts.
func TestMirrorsManyEndpoints(t *testing.T) {
	tables := derive.Tables{Endpoints: map[string][]*busv1.Endpoint{}}
	tables.Services = []*busv1.Service{{
		Namespace: "pottery", Name: "kiln", Ports: []*busv1.ServicePort{{Port: 80}},
		Labels: map[string]string{derive.LabelExported: "true"},
	}}
	for i := range 1200 {
		e := &busv1.Endpoint{
			Address: fmt.Sprintf("10.0.%d.%d", i/256, i%256), Ready: true, Ports: []*busv1.EndpointPort{{Port: 8080}},
		}
		tables.Endpoints["pottery/kiln"] = append(tables.Endpoints["pottery/kiln"], e, e) // twice: one counts
	}
	mirrors, _ := derive.Mirrors(tables, derive.Link{Cluster: "east"})
	names, total := map[string]bool{}, 0
	for _, s := range mirrors[0].Slices {
		names[s.Name] = true
		total += len(s.Endpoints)
		if len(s.Endpoints) > 1000 {
			t.Errorf("slice of %d endpoints", len(s.Endpoints))
		}
	}
	if len(names) != 3 || total != 1200 {
		t.Errorf("%d slices with %d endpoints, want 3 with 1200", len(names), total)
	}
}

// Rows come from another cluster: whatever they hold, there is no panic.
func FuzzMirrors(f *testing.F) {
	f.Add([]byte{}, []byte{}, []byte{}, []byte{})
	svc, err := proto.Marshal(&busv1.Service{
		Name: "a", Namespace: "b", Labels: map[string]string{derive.LabelExported: "true"},
		Ports: []*busv1.ServicePort{{Port: 1}},
	})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(svc, []byte{}, []byte{}, []byte{})
	f.Fuzz(func(t *testing.T, s, e, w, m []byte) {
		svc, ep := &busv1.Service{}, &busv1.Endpoint{}
		wl, tmpl := &busv1.Workload{}, &busv1.Template{}
		for into, b := range map[proto.Message][]byte{svc: s, ep: e, wl: w, tmpl: m} {
			if proto.Unmarshal(b, into) != nil {
				return
			}
		}
		tables := derive.Tables{
			Services:  []*busv1.Service{svc},
			Endpoints: map[string][]*busv1.Endpoint{svc.GetNamespace() + "/" + svc.GetName(): {ep}},
			Workloads: map[string]*busv1.Workload{ep.GetWorkload(): wl},
			Templates: map[string]*busv1.Template{wl.GetTemplate(): tmpl},
		}
		derive.Mirrors(tables, derive.Link{Cluster: "east"})
	})
}
