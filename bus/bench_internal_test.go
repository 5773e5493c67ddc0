package bus

import (
	"fmt"
	"testing"

	"go.opentelemetry.io/otel/trace"
)

// BenchmarkBuild is one snapshot of 175,000 rows of 300 bytes.
func BenchmarkBuild(b *testing.B) {
	s := newStore(nil)
	var state []Change
	for i := range 175_000 {
		state = append(state, put(4, fmt.Sprintf("pod/namespace-%d/service-%d-%x", i%500, i/15, i*7919), fmt.Sprintf("%0250d", i)))
	}
	s.rekey([digestKeySize]byte{1})
	s.replace(position{1, 1}, state, trace.SpanContext{})
	b.ReportAllocs()
	size := 0
	for b.Loop() {
		snap, err := s.build(s.copy())
		if err != nil {
			b.Fatal(err)
		}
		size = 0
		for _, c := range snap.chunks {
			size += len(c)
		}
	}
	b.ReportMetric(float64(size)/1e6, "MB")
}

func BenchmarkReplace(b *testing.B) {
	var state []Change
	for i := range 175_000 {
		state = append(state, put(4, fmt.Sprintf("pod/namespace-%d/service-%d-%x", i%500, i/15, i*7919), fmt.Sprintf("%0250d", i)))
	}
	b.ReportAllocs()
	for b.Loop() {
		s := newStore(nil)
		s.rekey([digestKeySize]byte{1})
		s.replace(position{1, 1}, state, trace.SpanContext{})
	}
}
