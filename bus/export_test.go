package bus

import (
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"go.opentelemetry.io/otel/trace"

	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
)

// Forget drops a row from a copy and from what its consumer was told, as if a
// change had been missed without anybody noticing.
func Forget(r *Reader, table busv1.Table, key string) {
	r.store.mu.Lock()
	defer r.store.mu.Unlock()
	c := Change{Table: table, Key: key}
	if r.store.put(c) {
		r.store.out.add(r.store.pos, []Change{c}, time.Time{}, trace.SpanContext{})
	}
}

// Damage drops a row from a reader's copy as a bug or a bit would: nobody is
// told, and the digest follows, since it says what is held.
func Damage(r *Reader, table busv1.Table, key string) {
	r.store.mu.Lock()
	defer r.store.mu.Unlock()
	r.store.put(Change{Table: table, Key: key})
}

// Repairs counts a reader's repairs of one kind.
func Repairs(r *Reader, kind string) float64 {
	var m dto.Metric
	if err := r.metrics.repairs.WithLabelValues(kind).Write(&m); err != nil {
		return -1
	}
	return m.GetCounter().GetValue()
}

func (s *store) all() []Change { return s.changesOf(s.rowsAt()) }

// Answered reads an answer.
func Answered(t *testing.T, body []byte) *busv1.Answer {
	t.Helper()
	a := new(busv1.Answer)
	if err := unpackMessage(body, a); err != nil {
		t.Fatal(err)
	}
	return a
}
