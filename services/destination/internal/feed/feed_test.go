package feed

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/weftmesh/weft/bus"
	"github.com/weftmesh/weft/bus/bustest"
	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
	"github.com/weftmesh/weft/services/destination/internal/row/rowtest"
	"github.com/weftmesh/weft/services/destination/internal/table"
)

func rows(t *testing.T, text string) []bus.Change {
	t.Helper()
	changes, err := rowtest.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return changes
}

// TestFeedCarriesTheLog: over a bus, the first complete state makes the tables
// synced and each change wakes its watchers.
func TestFeedCarriesTheLog(t *testing.T) {
	mem := bustest.Memory()
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 3)

	writing := mem.Join("")
	copied := bus.NewReader(writing, bus.ReaderConfig{Registry: prometheus.NewRegistry()})
	writer := bus.NewWriter(writing, copied, bus.WriterConfig{})
	go func() { done <- copied.Run(ctx) }()
	if err := writer.Lead(ctx, rows(t, "node vm-a zone=west-1\nservice grove/plum port=:80")); err != nil {
		t.Fatal(err)
	}

	log := bus.NewReader(mem.Join(""), bus.ReaderConfig{Registry: prometheus.NewRegistry()})
	tables := table.New()
	go func() { done <- log.Run(ctx) }()
	go func() { done <- New(log, tables, NewMetrics(prometheus.NewRegistry())).Run(ctx) }()

	w := tables.Watch(table.Node("vm-a"))
	defer w.Close()
	wait(t, w.C)
	if err := tables.Synced(); err != nil {
		t.Errorf("after the first state: %v", err)
	}
	if got := tables.Zone("vm-a"); got != "west-1" {
		t.Errorf("Zone() = %q", got)
	}
	seen := time.Now()
	if _, err := writer.Append(ctx, rows(t, "node vm-a zone=west-2"), seen); err != nil {
		t.Fatal(err)
	}
	w.Take()
	wait(t, w.C)
	if got := tables.Zone("vm-a"); got != "west-2" {
		t.Errorf("Zone() = %q after a change", got)
	}
	if c := w.Take(); c == nil || c.ObservedAt.UnixNano() != seen.UnixNano() {
		t.Errorf("the change says it was observed at %v, want %v", c, seen)
	}
	stop()
	for range 3 {
		if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("a part ended with %v", err)
		}
	}
}

func wait(t *testing.T, c <-chan struct{}) {
	t.Helper()
	timer := time.NewTimer(time.Minute)
	defer timer.Stop()
	select {
	case <-c:
	case <-timer.C:
		t.Fatal("nothing came")
	}
}

// fixed is a log that holds these cuts and then ends with an error.
type fixed struct {
	cuts []bus.Cut
	err  error
}

func (f fixed) Read(context.Context) iter.Seq2[bus.Cut, error] {
	return func(yield func(bus.Cut, error) bool) {
		for _, c := range f.cuts {
			if !yield(c, nil) {
				return
			}
		}
		yield(bus.Cut{}, f.err)
	}
}

func TestFeedSkipsAndCountsUnreadableRows(t *testing.T) {
	broken := errors.New("broken")
	tables := table.New()
	f := New(fixed{err: broken, cuts: []bus.Cut{{Complete: true, Changes: []bus.Change{
		{Table: busv1.Table_TABLE_SERVICES, Key: "grove/bad", Value: []byte{0xff}},
		rows(t, "node vm-a zone=west-1")[0],
	}}}}, tables, NewMetrics(prometheus.NewRegistry()))
	if err := f.Run(t.Context()); !errors.Is(err, broken) {
		t.Errorf("Run() = %v, want the log's error", err)
	}
	if got := testutil.ToFloat64(f.count.bad.WithLabelValues("services")); got != 1 {
		t.Errorf("%v rows were counted as unreadable, want 1", got)
	}
	if got := tables.Zone("vm-a"); got != "west-1" {
		t.Errorf("the row after the bad one is missing: zone %q", got)
	}
}

// TestReplicasAgreeAfterARollout is complaints row A22: after all pods of a large
// Service were replaced, slice by slice, every replica says the same as the
// source, whether it saw the changes or came late.
func TestReplicasAgreeAfterARollout(t *testing.T) {
	const pods = 180
	mem := bustest.Memory()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	writing := mem.Join("")
	copied := bus.NewReader(writing, bus.ReaderConfig{Registry: prometheus.NewRegistry()})
	writer := bus.NewWriter(writing, copied, bus.WriterConfig{})
	go func() { _ = copied.Run(ctx) }()
	line := func(i, generation int) string {
		return fmt.Sprintf("endpoint grove/plum/s%d/10.%d.0.%d port=:80", i/100, generation, i)
	}
	text := "service grove/plum port=:80\n"
	for i := range pods {
		text += line(i, 1) + "\n"
	}
	if err := writer.Lead(ctx, rows(t, text)); err != nil {
		t.Fatal(err)
	}
	replica := func() *table.Table {
		log := bus.NewReader(mem.Join(""), bus.ReaderConfig{Registry: prometheus.NewRegistry()})
		tables := table.New()
		go func() { _ = log.Run(ctx) }()
		go func() { _ = New(log, tables, NewMetrics(prometheus.NewRegistry())).Run(ctx) }()
		return tables
	}
	replicas := []*table.Table{replica(), replica()}
	for i := range pods {
		if _, err := writer.Append(ctx, rows(t, line(i, 2)+"\ndelete "+line(i, 1)), time.Now()); err != nil {
			t.Fatal(err)
		}
	}
	replicas = append(replicas, replica())
	want := make([]string, pods)
	for i := range pods {
		want[i] = fmt.Sprintf("10.2.0.%d", i)
	}
	slices.Sort(want)
	for n, tables := range replicas {
		w := tables.Watch(table.Endpoints("grove/plum"))
		defer w.Close()
		for !slices.Equal(addresses(tables), want) {
			wait(t, w.C)
		}
		t.Logf("replica %d agrees", n)
	}
}

func addresses(tables *table.Table) []string {
	facts, _ := tables.Endpoints("grove/plum")
	var all []string
	for _, b := range facts.Backends {
		all = append(all, b.Endpoint.Address.String())
	}
	slices.Sort(all)
	return all
}
