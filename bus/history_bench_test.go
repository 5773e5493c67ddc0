package bus_test

import (
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/weftmesh/weft/bus"
	"github.com/weftmesh/weft/bus/bustest"
	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
)

// BenchmarkHistory asks for one pod of 150,000, as it was when the last
// checkpoint had been written and 1,000 changes later.
func BenchmarkHistory(b *testing.B) {
	srv := bustest.ServerWith(b, server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, JetStreamDomain: bus.HistoryDomain, StoreDir: b.TempDir(), JetStreamMaxStore: 4 << 30,
	})
	tr := srv.Join("")
	reader := bus.NewReader(tr, bus.ReaderConfig{})
	w := bus.NewWriter(tr, reader, bus.WriterConfig{})
	keeper := bus.NewKeeper(tr, w, bus.HistoryConfig{Domain: bus.HistoryDomain})
	keeper.Hasten()
	background(b, reader.Run, w.Run, keeper.Run)
	truth := cluster(150_000)
	if err := w.Lead(b.Context(), truth); err != nil {
		b.Fatal(err)
	}
	h, err := bus.OpenHistory(srv.Join(""), bus.HistoryDomain)
	if err != nil {
		b.Fatal(err)
	}
	var pod bus.Change
	for _, c := range truth {
		if c.Table == busv1.Table_TABLE_WORKLOADS {
			pod = c
		}
	}
	q := bus.Question{Rows: []bus.Selection{{Table: pod.Table, Prefix: pod.Key, Match: func(k string) bool { return k == pod.Key }}}}
	var s bus.Story
	until(b, "a checkpoint is there", func() bool {
		q.Since = time.Now()
		s, err = h.Tell(b.Context(), q)
		return err == nil && len(s.Rows) == 1
	})
	checkpoint := s.Kept.Bytes
	for i := range 1000 {
		if _, err := w.Append(b.Context(), []bus.Change{node("n", string(rune('a'+i%26)))}, time.Now()); err != nil {
			b.Fatal(err)
		}
	}
	seq := reader.Status().Seq
	until(b, "all is kept", func() bool {
		q.Since = time.Now()
		s, err = h.Tell(b.Context(), q)
		return err == nil && s.Seq >= seq
	})
	b.ResetTimer()
	for b.Loop() {
		if s, err = h.Tell(b.Context(), q); err != nil || len(s.Rows) != 1 {
			b.Fatal(err, s.Rows)
		}
	}
	b.ReportMetric(float64(checkpoint)/1e6, "checkpoint-MB")
	b.ReportMetric(float64(s.Kept.Bytes-checkpoint)/1000, "B/change")
}
