package logtest

import (
	"context"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weftmesh/weft/bus"
)

// Process is one process on the bus: it follows the log, may write it, and
// keeps what its consumer has been told.
type Process struct {
	Name string
	*Tap
	R   *bus.Reader
	W   *bus.Writer
	Reg *prometheus.Registry

	t    *testing.T
	stop context.CancelFunc
	done sync.WaitGroup

	mu    sync.Mutex
	view  map[string]string
	cuts  []bus.Cut
	pause chan struct{} // closed when the consumer may go on
}

// Go starts what Prepare made.
func (p *Process) Go() {
	ctx, cancel := context.WithCancel(p.t.Context())
	p.stop = cancel
	p.done.Go(func() { _ = p.R.Run(ctx) })
	p.done.Go(func() { _ = p.W.Run(ctx) })
	p.done.Go(func() { p.consume(ctx) })
}

// Stop ends a process as if it was killed: nobody is told.
func (p *Process) Stop() {
	if p.stop == nil {
		return
	}
	p.stop()
	p.done.Wait()
	p.Close()
	p.stop = nil
}

func (p *Process) consume(ctx context.Context) {
	for cut, err := range p.R.Read(ctx) {
		if err != nil {
			return
		}
		p.mu.Lock()
		pause := p.pause
		if cut.Complete {
			clear(p.view)
		}
		for _, c := range cut.Changes {
			id := c.Table.String() + " " + c.Key
			if c.Value == nil {
				delete(p.view, id)
			} else {
				p.view[id] = string(c.Value)
			}
		}
		p.cuts = append(p.cuts, cut)
		p.mu.Unlock()
		if pause != nil {
			select {
			case <-pause:
			case <-ctx.Done():
			}
		}
	}
}

// Block makes the consumer hang in its next cut until the result is called.
func (p *Process) Block() (unblock func()) {
	ch := make(chan struct{})
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pause = ch
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.pause = nil
		close(ch)
	}
}

// Cuts is what the consumer has been told so far.
func (p *Process) Cuts() []bus.Cut {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]bus.Cut(nil), p.cuts...)
}

// Changes is the number of changes in the cuts from the nth on.
func (p *Process) Changes(n int) int {
	sum := 0
	for _, c := range p.Cuts()[n:] {
		sum += len(c.Changes)
	}
	return sum
}

func (p *Process) viewed() map[string]string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.view)
}

// Lead makes the process the writer of truth.
func (p *Process) Lead(truth ...bus.Change) {
	p.t.Helper()
	if err := p.W.Lead(p.t.Context(), truth); err != nil {
		p.t.Fatalf("%s leading: %v", p.Name, err)
	}
}

// Append appends one cut.
func (p *Process) Append(changes ...bus.Change) uint64 {
	p.t.Helper()
	seq, err := p.W.Append(p.t.Context(), changes, time.Now())
	if err != nil {
		p.t.Fatalf("%s appending: %v", p.Name, err)
	}
	return seq
}

// Metric is the sum of a metric of the process over all its labels but those
// given as name=value.
func (p *Process) Metric(name string, labels ...string) float64 {
	p.t.Helper()
	families, err := p.Reg.Gather()
	if err != nil {
		p.t.Fatalf("gathering metrics: %v", err)
	}
	sum := 0.0
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
	metrics:
		for _, m := range f.GetMetric() {
			have := map[string]bool{}
			for _, l := range m.GetLabel() {
				have[l.GetName()+"="+l.GetValue()] = true
			}
			for _, want := range labels {
				if !have[want] {
					continue metrics
				}
			}
			sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	return sum
}
