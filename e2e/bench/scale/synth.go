// Package scale measures the control plane at the size of a large cluster:
// real front-ends and a real NATS server, fed by a writer with a synthetic
// cluster. Its tests print a table and JSON, and fail when a budget is broken.
package scale

import (
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/weftmesh/weft/bus"
	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
)

// Size is how large a cluster is. The rest follows: fifteen pods a Service and
// an owner, thirty pods a node, twenty Services a namespace.
type Size struct{ Pods int }

const (
	podsPerService = 15
	podsPerNode    = 30
	perNamespace   = 20
	port           = 8080
)

// Services is how many there are.
func (s Size) Services() int { return max(1, s.Pods/podsPerService) }

// PodsPerService is how many pods each Service has.
const PodsPerService = podsPerService

// Authority is what clients call a Service.
func (s Size) Authority(service int) string {
	return fmt.Sprintf("%s.%s.svc.cluster.local:%d", name(service), namespace(service), port)
}

func namespace(service int) string { return fmt.Sprintf("namespace-%d", service/perNamespace) }
func name(service int) string      { return fmt.Sprintf("service-%d", service) }
func clusterIP(service int) string {
	return fmt.Sprintf("10.43.%d.%d", service>>8&255, service&255)
}

func podName(pod, generation int) string {
	return fmt.Sprintf("%s-%010x-%05x", name(pod/podsPerService), (pod/podsPerService+generation)*40503, (pod*7919+generation)%0xfffff)
}

func podIP(pod, generation int) string {
	n := pod + generation<<20
	return fmt.Sprintf("10.%d.%d.%d", 64+n>>16&127, n>>8&255, n&255)
}

// uid looks random, as they do, and is the same in every run.
func uid(i int) string {
	x := uint64(i+1) * 0x9e3779b97f4a7c15
	return fmt.Sprintf("%08x-%04x-%04x-%04x-%012x", uint32(x), x>>8&0xffff, x>>24&0xffff, x>>40&0xffff, x*x>>16)
}

func row(table busv1.Table, key string, value []byte) bus.Change {
	return bus.Change{Table: table, Key: key, Value: value}
}

// Rows is the whole cluster, every pod meshed.
func (s Size) Rows() []bus.Change {
	out := make([]bus.Change, 0, s.Pods*22/10)
	for n := range s.Pods/podsPerNode + 1 {
		node := nodeName(n)
		out = append(out, row(busv1.Table_TABLE_NODES, bus.Key(node), bus.Encode(&busv1.Node{Name: node, Zone: zone(n)})))
	}
	for i := range s.Services() {
		out = append(out, Template(i, 0), service(i))
	}
	for i := range s.Pods {
		out = append(out, Workload(i, 0, true), Endpoint(i, 0, true))
	}
	return out
}

func nodeName(n int) string { return fmt.Sprintf("node-%d", n) }
func zone(n int) string     { return "eu-1" + string(rune('a'+n%3)) }

func templateKey(service, generation int) string {
	return bus.Key(namespace(service), fmt.Sprintf("%016x", (service+generation<<20)*2654435761))
}

// Template is what the pods of a Service share; another generation is a rollout.
func Template(service, generation int) bus.Change {
	n := name(service)
	return row(busv1.Table_TABLE_TEMPLATES, templateKey(service, generation), bus.Encode(&busv1.Template{
		Namespace: namespace(service), Owner: &busv1.Owner{Kind: "deployment", Name: n}, ServiceAccount: n,
		Labels: map[string]string{
			"app": n, "app.kubernetes.io/part-of": namespace(service), "version": "v1", "team": "core", "tier": "web",
			"pod-template-hash": fmt.Sprintf("%010x", (service+generation)*40503),
		},
		Ports: []*busv1.Port{
			{Container: "main", Name: "http", Port: port, Protocol: "TCP"},
			{Container: "linkerd-proxy", Name: "linkerd-admin", Port: 4191, Protocol: "TCP"},
		},
		ControlPlaneNamespace: "linkerd", Proxy: &busv1.Proxy{InboundPort: 4143, AdminPort: 4191, ControlPort: 4190},
	}))
}

func service(i int) bus.Change {
	return row(busv1.Table_TABLE_SERVICES, bus.Key(namespace(i), name(i)), bus.Encode(&busv1.Service{
		Namespace: namespace(i), Name: name(i), Uid: uid(i), ClusterIps: []string{clusterIP(i)},
		Ports: []*busv1.ServicePort{{Name: "http", Port: port, TargetPort: "http", Protocol: "TCP"}}, CreatedAt: 1764500000,
	}))
}

// Workload is the row of a pod; another generation is another pod in its place.
func Workload(pod, generation int, ready bool) bus.Change {
	s := pod / podsPerService
	return row(busv1.Table_TABLE_WORKLOADS, bus.Key("pod", namespace(s), podName(pod, generation)), bus.Encode(&busv1.Workload{
		Kind: busv1.Workload_KIND_POD, Namespace: namespace(s), Name: podName(pod, generation), Uid: uid(pod + generation<<20),
		Template: templateKey(s, generation), Ips: []string{podIP(pod, generation)},
		HostIps: []string{fmt.Sprintf("172.16.%d.%d", pod/podsPerNode>>8&255, pod/podsPerNode&255)},
		Node:    nodeName(pod / podsPerNode), Phase: busv1.Workload_PHASE_RUNNING, Ready: ready,
	}))
}

// Endpoint is the row of a pod in its Service.
func Endpoint(pod, generation int, ready bool) bus.Change {
	s := pod / podsPerService
	slice, ip := name(s)+"-abcde", podIP(pod, generation)
	return row(busv1.Table_TABLE_ENDPOINTS, bus.Key(namespace(s), name(s), slice, ip), bus.Encode(&busv1.Endpoint{
		Namespace: namespace(s), Service: name(s), Slice: slice, Address: ip, Workload: bus.Key("pod", namespace(s), podName(pod, generation)),
		Ready: ready, Serving: ready, Node: nodeName(pod / podsPerNode), Zone: zone(pod / podsPerNode),
		Ports: []*busv1.EndpointPort{{Name: "http", Port: port}}, SliceUid: uid(1<<40 + s),
	}))
}

// Leaving is a pod that terminates: it has a deletion timestamp, and its
// endpoint serves but is not ready.
func Leaving(pod, generation int) []bus.Change {
	var w busv1.Workload
	var e busv1.Endpoint
	rows := []bus.Change{Workload(pod, generation, false), Endpoint(pod, generation, false)}
	if proto.Unmarshal(rows[0].Value, &w) != nil || proto.Unmarshal(rows[1].Value, &e) != nil {
		return nil // they were just encoded
	}
	w.Terminating, e.Terminating, e.Serving = true, true, true
	rows[0].Value, rows[1].Value = bus.Encode(&w), bus.Encode(&e)
	return rows
}
