package bus_test

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/weftmesh/weft/bus"
	"github.com/weftmesh/weft/bus/bustest"
	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
)

// cluster makes the rows of BUS.md section 1 in small: pods pods, a template and
// a service for every fifteen, an endpoint each.
func cluster(pods int) []bus.Change {
	out := make([]bus.Change, 0, pods*22/10)
	for i := range pods / 15 {
		ns, name := fmt.Sprintf("namespace-%d", i%500), fmt.Sprintf("service-%d", i)
		out = append(out,
			bus.Change{Table: busv1.Table_TABLE_TEMPLATES, Key: bus.Key(ns, fmt.Sprintf("%016x", i*2654435761)), Value: bus.Encode(&busv1.Template{
				Namespace: ns, Owner: &busv1.Owner{Kind: "deployment", Name: name}, ServiceAccount: name,
				Labels:                map[string]string{"app": name, "app.kubernetes.io/part-of": ns, "version": "v1", "team": "core", "tier": "web"},
				Ports:                 []*busv1.Port{{Container: "main", Name: "http", Port: 8080, Protocol: "TCP"}, {Container: "linkerd-proxy", Name: "linkerd-admin", Port: 4191, Protocol: "TCP"}},
				ControlPlaneNamespace: "linkerd", Proxy: &busv1.Proxy{InboundPort: 4143, AdminPort: 4191, ControlPort: 4190},
			})},
			bus.Change{Table: busv1.Table_TABLE_SERVICES, Key: bus.Key(ns, name), Value: bus.Encode(&busv1.Service{
				Namespace: ns, Name: name, Uid: uid(i), ClusterIps: []string{fmt.Sprintf("10.43.%d.%d", i>>8&255, i&255)},
				Ports: []*busv1.ServicePort{{Name: "http", Port: 80, TargetPort: "http", Protocol: "TCP"}}, CreatedAt: 1764500000,
			})})
	}
	for i := range pods {
		s := i / 15
		ns, svc := fmt.Sprintf("namespace-%d", s%500), fmt.Sprintf("service-%d", s)
		pod, ip, node := fmt.Sprintf("%s-%010x-%05x", svc, s*40503, i*7919%0xfffff), fmt.Sprintf("10.%d.%d.%d", i>>16&255, i>>8&255, i&255), fmt.Sprintf("node-%d", i%5000)
		out = append(out,
			bus.Change{Table: busv1.Table_TABLE_WORKLOADS, Key: bus.Key("pod", ns, pod), Value: bus.Encode(&busv1.Workload{
				Kind: busv1.Workload_KIND_POD, Namespace: ns, Name: pod, Uid: uid(i), Template: bus.Key(ns, fmt.Sprintf("%016x", s*2654435761)),
				Ips: []string{ip}, HostIps: []string{fmt.Sprintf("172.16.%d.%d", i%5000>>8, i%256)}, Node: node, Phase: busv1.Workload_PHASE_RUNNING, Ready: true,
			})},
			bus.Change{Table: busv1.Table_TABLE_ENDPOINTS, Key: bus.Key(ns, svc, svc+"-abcde", ip), Value: bus.Encode(&busv1.Endpoint{
				Namespace: ns, Service: svc, Slice: svc + "-abcde", Address: ip, Workload: bus.Key("pod", ns, pod),
				Ready: true, Serving: true, Node: node, Zone: "eu-1" + string(rune('a'+i%3)), Ports: []*busv1.EndpointPort{{Name: "http", Port: 8080}},
			})})
	}
	return out
}

func uid(i int) string {
	x := uint64(i+1) * 0x9e3779b97f4a7c15
	return fmt.Sprintf("%08x-%04x-%04x-%04x-%012x", uint32(x), x>>8&0xffff, x>>24&0xffff, x>>40&0xffff, x*x>>16)
}

const benchPods = 150_000

type network interface{ Join(string) bus.Transport }

func lead(tb testing.TB, ctx context.Context, net network, truth []bus.Change) (*bus.Writer, *bus.Reader) { //nolint:revive // the helper's t comes first
	tb.Helper()
	tr := net.Join("")
	r := bus.NewReader(tr, bus.ReaderConfig{})
	w := bus.NewWriter(tr, r, bus.WriterConfig{})
	go func() { _ = r.Run(ctx) }()
	go func() { _ = w.Run(ctx) }()
	if err := w.Lead(ctx, truth); err != nil {
		tb.Fatal(err)
	}
	return w, r
}

func heap() float64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc) / 1e6
}

// BenchmarkColdStart is a reader's way from nothing to the complete first cut,
// the writer's snapshot cached or not, and what the copy costs in memory.
func BenchmarkColdStart(b *testing.B) {
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	nats := bustest.NATS(b)
	truth := cluster(benchPods)
	raw := 0
	for _, c := range truth {
		raw += len(c.Key) + len(c.Value)
	}
	lead(b, ctx, nats, truth)
	clear(truth) // else its rows count as the reader's
	before := heap()
	var keep *bus.Reader
	for b.Loop() {
		one, stop := context.WithCancel(ctx)
		tr := nats.Join("")
		r := bus.NewReader(tr, bus.ReaderConfig{})
		done := make(chan struct{})
		go func() { defer close(done); _ = r.Run(one) }()
		for cut, err := range r.Read(one) {
			if err != nil || !cut.Complete {
				b.Fatal(err)
			}
			break
		}
		stop()
		<-done
		tr.Close()
		keep = r
	}
	b.ReportMetric(heap()-before, "heap-MB")
	b.ReportMetric(float64(raw)/1e6, "raw-MB")
	runtime.KeepAlive(keep)
	cancel()
}

// BenchmarkHop is one change from Append to the consumers of five readers.
func BenchmarkHop(b *testing.B) {
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	nats := bustest.NATS(b)
	w, _ := lead(b, ctx, nats, cluster(1500))
	const readers = 5
	got := make(chan uint64, readers)
	var ready sync.WaitGroup
	for range readers {
		r := bus.NewReader(nats.Join(""), bus.ReaderConfig{})
		go func() { _ = r.Run(ctx) }()
		ready.Add(1)
		go func() {
			for cut, err := range r.Read(ctx) {
				if err != nil {
					return
				}
				if cut.Complete {
					ready.Done()
					continue
				}
				got <- cut.Seq
			}
		}()
	}
	ready.Wait()
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		i++
		if _, err := w.Append(ctx, []bus.Change{node("n", fmt.Sprint(i))}, time.Now()); err != nil {
			b.Fatal(err)
		}
		for range readers {
			<-got
		}
	}
	cancel()
}

// BenchmarkAppend is what a one-row cut costs the writer.
func BenchmarkAppend(b *testing.B) {
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	w, _ := lead(b, ctx, bustest.NATS(b), cluster(1500))
	values := [][]byte{bus.Encode(&busv1.Node{Name: "n", Zone: "a"}), bus.Encode(&busv1.Node{Name: "n", Zone: "b"})}
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		i++
		if _, err := w.Append(ctx, []bus.Change{{Table: busv1.Table_TABLE_NODES, Key: "n", Value: values[i&1]}}, time.Time{}); err != nil {
			b.Fatal(err)
		}
	}
	cancel()
}
