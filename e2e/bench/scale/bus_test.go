package scale_test

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/proto"

	"github.com/weftmesh/weft/bus"
	"github.com/weftmesh/weft/e2e/bench/scale"
	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
)

// follow runs a reader in this process and counts the cuts that come after the
// first state.
func follow(t *testing.T, tr bus.Transport, reg prometheus.Registerer, each func(bus.Cut)) *bus.Reader {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	r := bus.NewReader(tr, bus.ReaderConfig{Registry: reg})
	var running sync.WaitGroup
	running.Go(func() { _ = r.Run(ctx) })
	running.Go(func() {
		for cut, err := range r.Read(ctx) {
			if err != nil {
				return
			}
			if !cut.Complete && each != nil {
				each(cut)
			}
		}
	})
	t.Cleanup(func() { stop(); running.Wait() })
	eventually(t, "the reader is synced", func() bool { return r.Synced() == nil })
	return r
}

// TestResume: a reader whose connection was cut asks for what it missed, which
// is nothing.
func TestResume(t *testing.T) {
	s := bench(t, "resume")
	m := start(t, scaledAtLeast(1500, 150))
	tr := m.join("destination")
	reg := prometheus.NewRegistry()
	follow(t, tr, reg, nil)
	wire := m.tapped()
	before := count(t, reg, "weft_bus_repairs_total", "nothing")
	tr.Reconnect()
	eventually(t, "the reader is told that it missed nothing", func() bool {
		return count(t, reg, "weft_bus_repairs_total", "nothing") > before
	})
	wire.flush(t)
	s.most("question, nothing missed", float64(wire.asks.Load()), "bytes", 64)
	s.most("answer, nothing missed", float64(wire.answers.Load()), "bytes", 64)
}

// count reads a counter of this process.
func count(t *testing.T, reg *prometheus.Registry, name, label string) float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	sum := 0.0
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, series := range f.GetMetric() {
			for _, l := range series.GetLabel() {
				if l.GetValue() == label {
					sum += series.GetCounter().GetValue()
				}
			}
		}
	}
	return sum
}

// bender is a connection on which one word of the log arrives as another: the
// copy behind it is damaged, as by memory that forgets.
type bender struct {
	bus.Transport
	from, to []byte
}

func (b bender) Subscribe(subject string, deliver func(bus.Message)) (bus.Subscription, error) {
	return b.Transport.Subscribe(subject, func(msg bus.Message) { //nolint:wrapcheck // it stands for the other
		if bytes.Contains(msg.Data, b.from) {
			msg.Data = bytes.ReplaceAll(slices.Clone(msg.Data), b.from, b.to)
		}
		deliver(msg)
	})
}

// TestDigestRepair: a damaged row costs its bucket and not a snapshot.
func TestDigestRepair(t *testing.T) {
	s := bench(t, "repair")
	m := start(t, *pods)
	reg := prometheus.NewRegistry()
	follow(t, bender{m.join("destination"), []byte("a-truth"), []byte("not-one")}, reg, nil)
	wire := m.tapped()
	row := scale.Endpoint(0, 0, true)
	var e busv1.Endpoint
	if err := proto.Unmarshal(row.Value, &e); err != nil {
		t.Fatal(err)
	}
	e.Hostname = "a-truth"
	row.Value = bus.Encode(&e)
	m.append(row)
	eventually(t, "the damage is found and mended", func() bool { return count(t, reg, "weft_bus_repairs_total", "patch") > 0 })
	wire.flush(t)
	s.most("question with the buckets' sums", float64(wire.asks.Load())/1e3, "kB", 100)
	s.most("answer with one bucket", float64(wire.answers.Load())/1e3, "kB", 100)
}

// TestUnchanged: rows that are written again as they are cost nothing.
func TestUnchanged(t *testing.T) {
	s := bench(t, "unchanged")
	m := start(t, scaledAtLeast(1500, 150))
	p, addr := m.destination()
	_ = p
	swarm := newSwarm(t, m.size.Services())
	ask := streamsOf(m, m.size.Services(), false)
	swarm.spread(t, addr, 1, ask)
	swarm.answered(t, len(ask))
	wire := m.tapped()
	told := swarm.msgs.Load()
	for i := range 100 {
		m.append(scale.Workload(i, 0, true), scale.Endpoint(i, 0, true))
	}
	// Zones are not in a plain answer, but a flipped endpoint is: it comes last.
	m.append(scale.Endpoint(0, 0, false))
	eventually(t, "the change after them is told", func() bool { return swarm.msgs.Load() > told })
	wire.flush(t)
	s.exactly("bus messages for 200 rows as they were", int(wire.msgs.Load())-1, 0, "")
	s.exactly("stream messages for them", int(swarm.msgs.Load()-told)-1, 0, "")
}

// TestRollingUpdate: 20,000 pods are replaced: created, ready, terminating, gone.
func TestRollingUpdate(t *testing.T) {
	s := bench(t, "rolling")
	n := scaled(20_000)
	for _, shape := range []struct {
		name string
		rows int // in a batch
	}{
		// 80,000 events in a minute are 14 in each 10 ms, and two rows each.
		{"in a storm", 28},
		{"an event at a time", 2},
	} {
		m := start(t, n)
		wire := m.tapped()
		var batch []bus.Change
		write := func(changes ...bus.Change) {
			if batch = append(batch, changes...); len(batch) >= shape.rows {
				m.append(batch...)
				batch = nil
			}
		}
		for pod := range n {
			if pod%scale.PodsPerService == 0 {
				write(scale.Template(pod/scale.PodsPerService, 1))
			}
			old := []bus.Change{scale.Workload(pod, 0, true), scale.Endpoint(pod, 0, true)}
			write(scale.Workload(pod, 1, false), scale.Endpoint(pod, 1, false))
			write(scale.Workload(pod, 1, true), scale.Endpoint(pod, 1, true))
			write(scale.Leaving(pod, 0)...)
			write(bus.Change{Table: old[0].Table, Key: old[0].Key}, bus.Change{Table: old[1].Table, Key: old[1].Key})
		}
		m.append(batch...)
		wire.flush(t)
		per := fmt.Sprintf("%d endpoints, %s: ", n, shape.name)
		mb := float64(wire.log.Load()) / 1e6
		if shape.rows > 2 {
			s.most(per+"on the bus for each subscriber", mb, "MB", max(25*float64(n)/20_000, 0.05))
		} else {
			s.say(per+"on the bus for each subscriber", mb, "MB", 25*float64(n)/20_000)
		}
		s.say(per+"messages", float64(wire.msgs.Load()), "", 0)
	}
}

// TestHop: 1,000 batches a second to five readers.
func TestHop(t *testing.T) {
	s := bench(t, "hop")
	m := start(t, scaledAtLeast(15_000, 150))
	const readers, rate = 5, 1000
	n := scaledAtLeast(5000, 200)
	var mu sync.Mutex
	var took []float64
	var seen [readers]atomic.Int64
	for i := range readers {
		follow(t, m.join("destination"), prometheus.NewRegistry(), func(cut bus.Cut) {
			ms := float64(time.Since(cut.ObservedAt).Nanoseconds()) / 1e6
			mu.Lock()
			took = append(took, ms)
			mu.Unlock()
			seen[i].Store(int64(cut.Seq))
		})
	}
	began := time.Now()
	for i := range n {
		if wait := time.Until(began.Add(time.Duration(i) * time.Second / rate)); wait > 0 {
			<-time.After(wait)
		}
		m.append(scale.Endpoint(0, 0, i%2 == 1))
	}
	last := int64(m.reader.Status().Seq)
	eventually(t, "every reader has all", func() bool {
		for i := range seen {
			if seen[i].Load() < last {
				return false
			}
		}
		return true
	})
	slices.Sort(took)
	s.say("publish to consumer, p50", quantile(took, .5), "ms", 0)
	s.say("publish to consumer, p99", quantile(took, .99), "ms", 2)
}
