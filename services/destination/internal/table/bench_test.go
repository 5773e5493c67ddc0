package table

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/weftmesh/weft/bus"
	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
)

// meshed is a cluster of meshed pods, fifteen a Service and thirty a node.
func meshed(pods int) []bus.Change {
	row := func(table busv1.Table, value []byte, key ...string) bus.Change {
		return bus.Change{Table: table, Key: bus.Key(key...), Value: value}
	}
	var out []bus.Change
	for s := range pods / 15 {
		name, ns := fmt.Sprintf("service-%d", s), fmt.Sprintf("namespace-%d", s/20)
		hash := fmt.Sprintf("%016x", s*2654435761)
		out = append(out,
			row(busv1.Table_TABLE_TEMPLATES, bus.Encode(&busv1.Template{
				Namespace: ns, Owner: &busv1.Owner{Kind: "deployment", Name: name}, ServiceAccount: name,
				Labels: map[string]string{"app": name, "version": "v1", "team": "core", "tier": "web"},
				Ports:  []*busv1.Port{{Container: "main", Name: "http", Port: 8080, Protocol: "TCP"}}, ControlPlaneNamespace: "linkerd",
				Proxy: &busv1.Proxy{InboundPort: 4143, AdminPort: 4191, ControlPort: 4190},
			}), ns, hash),
			row(busv1.Table_TABLE_SERVICES, bus.Encode(&busv1.Service{
				Namespace: ns, Name: name, ClusterIps: []string{fmt.Sprintf("10.43.%d.%d", s>>8, s&255)},
				Ports: []*busv1.ServicePort{{Name: "http", Port: 8080, TargetPort: "http", Protocol: "TCP"}},
			}), ns, name))
		for i := range 15 {
			n := s*15 + i
			pod, ip := fmt.Sprintf("%s-%010x-%05x", name, s*40503, n*7919%0xfffff), fmt.Sprintf("10.%d.%d.%d", 64+n>>16, n>>8&255, n&255)
			out = append(out,
				row(busv1.Table_TABLE_WORKLOADS, bus.Encode(&busv1.Workload{
					Kind: busv1.Workload_KIND_POD, Namespace: ns, Name: pod, Template: bus.Key(ns, hash), Ips: []string{ip},
					HostIps: []string{fmt.Sprintf("172.16.%d.%d", n/30>>8, n/30&255)}, Node: fmt.Sprintf("node-%d", n/30),
					Phase: busv1.Workload_PHASE_RUNNING, Ready: true,
				}), "pod", ns, pod),
				row(busv1.Table_TABLE_ENDPOINTS, bus.Encode(&busv1.Endpoint{
					Namespace: ns, Service: name, Slice: name + "-abcde", Address: ip, Workload: bus.Key("pod", ns, pod), Ready: true,
					Node: fmt.Sprintf("node-%d", n/30), Zone: fmt.Sprintf("eu-1%c", 'a'+n/30%3), Ports: []*busv1.EndpointPort{{Name: "http", Port: 8080}},
				}), ns, name, name+"-abcde", ip))
		}
	}
	return out
}

func liveHeap() float64 {
	runtime.GC()
	runtime.GC() // what finalizers and the first sweep let go
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}

// BenchmarkStart is the first cut of a large cluster, and what each of its pods
// then costs beside the log's own keys.
func BenchmarkStart(b *testing.B) {
	const pods = 30_000
	changes := meshed(pods)
	var held float64
	for b.Loop() {
		b.StopTimer()
		before := liveHeap()
		t := New()
		b.StartTimer()
		if bad := t.Apply(bus.Cut{Changes: changes, Complete: true}); len(bad) > 0 {
			b.Fatal(bad[0].Err)
		}
		b.StopTimer()
		held = liveHeap() - before
		runtime.KeepAlive(t)
		b.StartTimer()
	}
	runtime.KeepAlive(changes)
	b.ReportMetric(held/pods, "heap-B/pod")
}
