package derive_test

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/weftmesh/weft/bus"
	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
	"github.com/weftmesh/weft/services/destination/internal/row/rowtest"
	"github.com/weftmesh/weft/services/destination/internal/table"
)

// base is a Service that uses every field that an answer reads.
var base = map[string]string{
	"node":     "node vm-a zone=west-1",
	"template": "template grove/m owner=deployment/plum sa=picker mesh=linkerd proxy=4143/4191/4190 label:app=plum port=web:8080:7070 annotation:config.linkerd.io/opaque-ports=9",
	"workload": "pod grove/a template=grove/m ip=10.0.0.1 hostip=192.0.2.1 node=vm-a label:hue=red",
	"external": "external grove/vm template=grove/m ip=10.0.0.9 identity=spiffe://x sni=vm.local",
	"service":  "service grove/plum ip=10.96.0.1 port=web:80",
	"endpoint": "endpoint grove/plum/s/10.0.0.1 pod=grove/a port=web:8080 zone=west-1 hint=west-1 host=plum-0",
	"other":    "endpoint grove/plum/s/10.0.0.2 port=web:8080 hint=west-2",
	"gateway":  "endpoint grove/plum/t/198.51.100.7 port=web:4143 gateway=gw authority=plum.grove.svc.east.local cluster=east inbound=4143 hint=west-2",
	"outside":  "endpoint grove/plum/x/10.0.0.9 external=grove/vm port=web:8080 hint=west-2",
	"server":   "server grove/srv pods:app=plum port=web protocol=opaque",
	"profile":  `profile grove/plum.grove.svc.cluster.local {"routes":[{"name":"a","condition":{"method":"GET"}}],"retryBudget":{"retryRatio":0.5,"ttl":"1s"},"dstOverrides":[{"authority":"x","weightMilli":"1"}]}`,
	"split":    `split grove/canary {"service":"fig","backends":[{"authority":"x","weightMilli":"1"}]}`,
	"fig":      "service grove/fig port=:80",
}

// questions are asked of each state; together they read everything.
var questions = strings.Fields(`
get:plum.grove.svc.cluster.local:80|node=vm-a
get:plum.grove.svc.cluster.local:80
get:plum-0.plum.grove.svc.cluster.local:80
profile:plum.grove.svc.cluster.local:80
profile:fig.grove.svc.cluster.local:80
profile:10.96.0.1:80
profile:10.0.0.1:8080
profile:192.0.2.1:7070
profile:10.0.0.9:8080`)

// TestEveryFieldThatIsReadCounts is complaints row A38 (and its opposite, A37):
// a change of any field that answers read changes an answer, and of no other
// does. A new field of a row has to be put on one of the lists.
func TestEveryFieldThatIsReadCounts(t *testing.T) {
	const pod, svc, ep, gw, tpl = "workload", "service", "endpoint", "gateway", "template"
	read := map[string][2]string{ // field: which row becomes what
		"Node.zone":                        {"node", "node vm-a zone=west-2"},
		"Template.owner":                   {tpl, strings.Replace(base[tpl], "deployment/plum", "daemonset/plum", 1)},
		"Template.service_account":         {tpl, strings.Replace(base[tpl], "sa=picker", "sa=other", 1)},
		"Template.labels":                  {tpl, strings.Replace(base[tpl], "app=plum", "app=fig", 1)},
		"Template.annotations":             {tpl, strings.Replace(base[tpl], "ports=9", "ports=7070", 1) + " annotation:config.linkerd.io/skip-inbound-ports=8080"},
		"Template.ports":                   {tpl, strings.Replace(base[tpl], "8080:7070", "8081:7070", 1)},
		"Template.control_plane_namespace": {tpl, strings.Replace(base[tpl], "mesh=linkerd", "mesh=other", 1)},
		"Template.proxy":                   {tpl, strings.Replace(base[tpl], "4143/", "4144/", 1)},
		"Template.host_network":            {tpl, base[tpl] + " hostnetwork"},
		"Workload.kind":                    {pod, "delete pod grove/a"},
		"Workload.namespace":               {pod, "delete pod grove/a"},
		"Workload.name":                    {pod, "delete pod grove/a"},
		"Workload.template":                {pod, strings.Replace(base[pod], "grove/m", "grove/none", 1)},
		"Workload.ips":                     {pod, strings.Replace(base[pod], "ip=10.0.0.1", "ip=10.0.0.3", 1)},
		"Workload.host_ips":                {pod, strings.Replace(base[pod], "192.0.2.1", "192.0.2.2", 1)},
		"Workload.phase":                   {pod, base[pod] + " phase=pending"},
		"Workload.labels":                  {pod, base[pod] + " label:app=fig"},
		"Workload.external":                {"external", strings.Replace(base["external"], "spiffe://x", "spiffe://y", 1)},
		"Service.namespace":                {svc, "delete service grove/plum"},
		"Service.name":                     {svc, "delete service grove/plum"},
		"Service.cluster_ips":              {svc, strings.Replace(base[svc], "10.96.0.1", "10.96.0.2", 1)},
		"Service.ports":                    {svc, strings.Replace(base[svc], "web:80", "db:80", 1)},
		"Service.external_name":            {svc, base[svc] + " externalname"},
		"Service.internal_traffic_local":   {svc, base[svc] + " local"},
		"Service.annotations":              {svc, base[svc] + " annotation:config.linkerd.io/opaque-ports=80"},
		"Service.labels":                   {svc, base[svc] + " label:multicluster.linkerd.io/remote-discovery=east label:multicluster.linkerd.io/remote-service=x"},
		"Endpoint.address":                 {ep, "delete " + base[ep]},
		"Endpoint.workload":                {ep, strings.Replace(base[ep], "grove/a", "grove/b", 1)},
		"Endpoint.ready":                   {ep, base[ep] + " unready"},
		"Endpoint.hostname":                {ep, strings.Replace(base[ep], "plum-0", "plum-1", 1)},
		"Endpoint.zone":                    {ep, strings.Replace(base[ep], "zone=west-1", "zone=west-9", 1)},
		"Endpoint.zone_hints":              {ep, strings.Replace(base[ep], "hint=west-1", "hint=west-9", 1)},
		"Endpoint.ports":                   {ep, strings.Replace(base[ep], "web:8080", "web:8081", 1)},
		"Endpoint.gateway_identity":        {gw, strings.Replace(base[gw], "gateway=gw", "gateway=gx", 1)},
		"Endpoint.authority":               {gw, strings.Replace(base[gw], "plum.grove", "fig.grove", 1)},
		"Endpoint.target_cluster":          {gw, strings.Replace(base[gw], "cluster=east", "cluster=west", 1)},
		"Endpoint.inbound_port":            {gw, strings.Replace(base[gw], "inbound=4143", "inbound=4144", 1)},
		"Server.pods":                      {"server", strings.Replace(base["server"], "app=plum", "app=fig", 1)},
		"Server.external_workloads":        {"server", "server grove/srv externals:app=plum port=web protocol=opaque"},
		"Server.port":                      {"server", strings.Replace(base["server"], "port=web", "port=1", 1)},
		"Server.port_name":                 {"server", strings.Replace(base["server"], "port=web", "port=db", 1)},
		"Server.proxy_protocol":            {"server", strings.Replace(base["server"], "opaque", "HTTP/2", 1)},
		"ServiceProfile.namespace":         {"profile", "delete profile grove/plum.grove.svc.cluster.local"},
		"ServiceProfile.name":              {"profile", "delete profile grove/plum.grove.svc.cluster.local"},
		"ServiceProfile.routes":            {"profile", strings.Replace(base["profile"], "GET", "PUT", 1)},
		"ServiceProfile.retry_budget":      {"profile", strings.Replace(base["profile"], "0.5", "0.6", 1)},
		"ServiceProfile.dst_overrides":     {"profile", strings.Replace(base["profile"], `"x"`, `"y"`, 1)},
		"TrafficSplit.namespace":           {"split", "delete split grove/canary"},
		"TrafficSplit.service":             {"split", strings.Replace(base["split"], "fig", "plum", 1)},
		"TrafficSplit.backends":            {"split", strings.Replace(base["split"], `"x"`, `"y"`, 1)},
	}
	// Why each of these changes no answer.
	unread := map[string]string{
		"Node.name":          "it is the key",
		"Template.probes":    "policy reads them",
		"Template.namespace": "it is in the key",
		"Workload.uid":       "explain reads it", "Service.uid": "explain reads it", "Server.uid": "explain reads it",
		"Endpoint.slice_uid": "explain reads it", "ServiceProfile.uid": "explain reads it", "TrafficSplit.uid": "explain reads it",
		"Workload.node":        "only while traffic is local, see golden local",
		"Workload.ready":       "slices say who is ready",
		"Workload.terminating": "only while another pod has the address, see golden profile-address",
		"Service.created_at":   "policy reads it", "Server.created_at": "policy reads it",
		"Endpoint.namespace": "it is in the key", "Endpoint.service": "it is in the key", "Endpoint.slice": "only the order of slices, see golden families",
		"Endpoint.ipv6": "the address says so", "Endpoint.serving": "as with Linkerd", "Endpoint.terminating": "as with Linkerd",
		"Endpoint.node":    "the pod says where it runs",
		"Server.namespace": "it is in the key", "Server.name": "explain reads it", "Server.access_policy": "policy reads it", "Server.labels": "policy reads them",
		"TrafficSplit.name": "only between two splits, see golden profile-split", "TrafficSplit.created_at": "only between two splits, see golden profile-split",
	}
	for _, m := range []proto.Message{
		&busv1.Node{}, &busv1.Template{}, &busv1.Workload{}, &busv1.Service{}, &busv1.Endpoint{}, &busv1.Server{}, &busv1.ServiceProfile{}, &busv1.TrafficSplit{},
	} {
		d := m.ProtoReflect().Descriptor()
		for i := range d.Fields().Len() {
			name := string(d.Name()) + "." + string(d.Fields().Get(i).Name())
			_, isRead := read[name]
			if _, isUnread := unread[name]; isRead == isUnread {
				t.Errorf("%s is on %v lists, want one: is it read?", name, map[bool]string{true: "both", false: "no"}[isRead])
			}
		}
	}
	want := answers(t, nil)
	for name, change := range read {
		if got := answers(t, map[string]string{change[0]: change[1]}); got == want {
			t.Errorf("a change of %s (%s) changed no answer", name, change[1])
		}
	}
	for name, change := range map[string][2]string{
		"Workload.uid": {pod, base[pod] + " uid=x"}, "Service.uid": {svc, base[svc] + " uid=x"},
		"Workload.terminating":           {pod, base[pod] + " terminating"},
		"a label that no selector names": {pod, base[pod] + " label:other=x"},
	} {
		if got := answers(t, map[string]string{change[0]: change[1]}); got != want {
			t.Errorf("a change of %s changed an answer:\n%s", name, got)
		}
	}
}

// answers are those to all questions, with some rows exchanged.
func answers(t *testing.T, instead map[string]string) string {
	t.Helper()
	tables := table.New()
	for name, line := range base {
		if other, ok := instead[name]; ok {
			line = other
		}
		changes, err := rowtest.Parse(line)
		if err != nil {
			t.Fatal(err)
		}
		if bad := tables.Apply(bus.Cut{Changes: changes}); len(bad) > 0 {
			t.Fatalf("%s: %v", line, bad[0].Err)
		}
	}
	c := config()
	c.ForceOpaqueTransport = true
	var out strings.Builder
	for _, q := range questions {
		kind, rest, _ := strings.Cut(q, ":")
		if tables.Service("grove/plum") == nil && strings.Contains(rest, "plum.grove") {
			out.WriteString("gone\n")
			continue
		}
		question(t, c, tables, kind+" "+strings.ReplaceAll(rest, "|", " "), &out)
	}
	return out.String()
}
