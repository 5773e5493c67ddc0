package kube

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
)

// slice is an EndpointSlice, as far as these tests look.
type slice struct {
	Metadata struct {
		Name            string
		Labels          map[string]string
		OwnerReferences []struct{ Kind, Name, UID string }
	}
	AddressType string
	Ports       []struct {
		Name string
		Port int
	}
	Endpoints []struct {
		Addresses  []string
		Conditions struct{ Ready, Serving bool }
		TargetRef  struct{ Kind, Name string }
		Zone       string
	}
}

// made lists the slices that were made for external workloads.
func (s *server) made(ns string) ([]slice, error) {
	answer, err := s.do(http.MethodGet, in(endpointSlices, ns)+"?labelSelector=endpointslice.kubernetes.io/managed-by=linkerd-external-workloads-controller", "", nil)
	if err != nil {
		return nil, err
	}
	var list struct{ Items []slice }
	err = json.Unmarshal(answer, &list)
	return list.Items, err
}

// TestExternalWorkloads: a Service that selects machines gets slices of them, and
// they are endpoints in the log.
func TestExternalWorkloads(t *testing.T) {
	s := open(t)
	s.install(t, looseCRDs()...)
	ns := s.namespace(t, "machines", nil)
	s.create(t, in(services, ns), named("plum", object{"metadata": object{"labels": object{"team": "fruit"}}, "spec": object{
		"selector": object{"app": "plum"}, "ports": []any{object{"name": "http", "port": 80, "targetPort": "web"}},
	}}))
	machine := func(name, ip string, ready string) object {
		return named(name, object{
			"apiVersion": "workload.linkerd.io/v1beta1", "kind": "ExternalWorkload",
			"metadata": object{"labels": object{"app": "plum", "topology.kubernetes.io/zone": "west"}},
			"spec": object{
				"meshTLS": object{"identity": "spiffe://root/" + name, "serverName": name + ".example"}, "workloadIPs": []any{object{"ip": ip}},
				"ports": []any{object{"name": "web", "port": 8080}},
			},
			"status": object{"conditions": []any{object{"type": "Ready", "status": ready}}},
		})
	}
	s.create(t, in(externals, ns), machine("vm-1", "10.2.0.1", "True"), machine("vm-2", "10.2.0.2", "False"))
	m := s.mesh(t)
	w := m.watcher()
	shows := func(want string) func() error {
		return func() error {
			list, err := s.made(ns)
			if err != nil {
				return err
			}
			var got []string
			for _, es := range list {
				for _, e := range es.Endpoints {
					got = append(got, fmt.Sprintf("%s %s %t", e.TargetRef.Name, e.Addresses, e.Conditions.Ready))
				}
			}
			slices.Sort(got)
			if strings.Join(got, ", ") != want || len(list) > 1 {
				return fmt.Errorf("%d slices with %v, want %s", len(list), got, want)
			}
			return nil
		}
	}
	m.until("a slice of both", shows("vm-1 [10.2.0.1] true, vm-2 [10.2.0.2] false"))
	list, err := s.made(ns)
	if err != nil || len(list) != 1 {
		t.Fatalf("slices %+v, %v", list, err)
	}
	es := list[0]
	if !strings.HasPrefix(es.Metadata.Name, "linkerd-external-plum-") || es.Metadata.Labels["kubernetes.io/service-name"] != "plum" || es.Metadata.Labels["team"] != "fruit" ||
		len(es.Metadata.OwnerReferences) != 1 || es.Metadata.OwnerReferences[0].Name != "plum" || es.AddressType != "IPv4" ||
		len(es.Ports) != 1 || es.Ports[0].Port != 8080 || es.Ports[0].Name != "http" || es.Endpoints[0].Zone != "west" {
		t.Errorf("slice %+v", es)
	}
	m.until("endpoints in the log", func() error {
		endpoint := new(busv1.Endpoint)
		if !m.row(busv1.Table_TABLE_ENDPOINTS, endpoint, ns, "plum", es.Metadata.Name, "10.2.0.1") || endpoint.GetWorkload() == "" || !endpoint.GetReady() {
			return fmt.Errorf("endpoint %v of %v", endpoint, m.keys(busv1.Table_TABLE_ENDPOINTS, ns))
		}
		return nil
	})
	s.patch(t, in(externals, ns)+"/vm-2", object{"status": object{"conditions": []any{object{"type": "Ready", "status": "True"}}}})
	m.until("the other is ready", shows("vm-1 [10.2.0.1] true, vm-2 [10.2.0.2] true"))
	s.remove(t, in(externals, ns)+"/vm-1")
	m.until("one is gone", shows("vm-2 [10.2.0.2] true"))
	// Pods are Kubernetes' own business, and so is a Service that selects none of these.
	s.patch(t, in(services, ns)+"/plum", object{"spec": object{"selector": object{"app": "pear"}}})
	m.until("none is selected", shows(""))
	if n := metric(t, w, `weft_watcher_external_slices_total{done="created",result="ok"}`); n != 1 {
		t.Errorf("%v slices were created, want one:\n%s", n, w.Log())
	}
	for _, done := range []string{"created", "updated", "deleted"} {
		if n := metric(t, w, `weft_watcher_external_slices_total{done="`+done+`",result="failed"}`); n != 0 {
			t.Errorf("%v slices could not be %s:\n%s", n, done, w.Log())
		}
	}
}
