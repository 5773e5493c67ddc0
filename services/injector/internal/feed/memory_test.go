package feed_test

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weftmesh/weft/bus"
	"github.com/weftmesh/weft/bus/bustest"
	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
	"github.com/weftmesh/weft/services/injector/internal/feed"
)

// pods are rows as a watcher makes them.
func pods(n int) []bus.Change {
	out := make([]bus.Change, n)
	for i := range out {
		name := fmt.Sprintf("kiln-%05d", i)
		out[i] = bus.Change{Table: busv1.Table_TABLE_WORKLOADS, Key: bus.Key("pod", "pottery", name), Value: bus.Encode(&busv1.Workload{
			Kind: busv1.Workload_KIND_POD, Namespace: "pottery", Name: name, Uid: fmt.Sprintf("00000000-0000-4000-8000-%012d", i),
			Ips: []string{fmt.Sprintf("10.1.%d.%d", i>>8, i&255)}, Node: "node-1", Phase: busv1.Workload_PHASE_RUNNING,
		})}
	}
	return out
}

// However many pods the cluster has, the injector holds its namespaces and
// nothing else (complaint C1).
func TestPodsTakeNoMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net := bustest.Memory()
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		defer func() { cancel(); all.Wait() }()

		up := net.Join("")
		writing := bus.NewReader(up, bus.ReaderConfig{})
		writer := bus.NewWriter(up, writing, bus.WriterConfig{})
		all.Go(func() { _ = writing.Run(ctx) })
		all.Go(func() { _ = writer.Run(ctx) })
		namespace := bus.Change{Table: busv1.Table_TABLE_NAMESPACES, Key: bus.Key("pottery"), Value: bus.Encode(&busv1.Namespace{
			Name: "pottery", Annotations: map[string]string{"linkerd.io/inject": "enabled"},
		})}
		truth := append(pods(20_000), namespace)
		if err := writer.Lead(ctx, truth); err != nil {
			t.Fatal(err)
		}

		before := heap()
		reg := prometheus.NewRegistry()
		reader := bus.NewReader(net.Join(""), bus.ReaderConfig{Registry: reg, Tables: feed.Tables()})
		f := feed.New(reader)
		all.Go(func() { _ = reader.Run(ctx) })
		all.Go(func() { _ = f.Run(ctx) })
		time.Sleep(10 * time.Second) //nolint:forbidigo // virtual time
		synctest.Wait()
		got, err := f.Annotations(ctx, "pottery")
		if err != nil || got["linkerd.io/inject"] != "enabled" {
			t.Fatalf("Annotations() = %v, %v", got, err)
		}
		if rows := reader.All(); len(rows) != 1 {
			t.Errorf("%d rows are held, want 1", len(rows))
		}
		// 20,000 rows are 5 MB and more.
		if grown := heap() - before; grown > 2<<20 {
			t.Errorf("%d bytes are held, want less than 2 MiB", grown)
		}
		runtime.KeepAlive(truth)
		runtime.KeepAlive(f)
	})
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
