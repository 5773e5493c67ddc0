// Package feed follows the other cluster's log and keeps of it what copies are
// made from: the services that are wanted, and which endpoints belong to which service.
//
// One goroutine runs Run; any other may ask for Tables. Before the first
// complete state there are no tables: unknown is not empty.
package feed

import (
	"context"
	"fmt"
	"iter"
	"log/slog"
	"sync"

	"google.golang.org/protobuf/proto"

	"github.com/weftmesh/weft/bus"
	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
	"github.com/weftmesh/weft/services/kit/obs"
	"github.com/weftmesh/weft/services/mirror/internal/derive"
)

// log is the other cluster's: a bus.Reader, or a test's.
type log interface {
	Read(ctx context.Context) iter.Seq2[bus.Cut, error]
	Row(table busv1.Table, key string) (value []byte, ok bool)
}

// Feed is the index over the log.
type Feed struct {
	log   log
	rules derive.Rules

	mu       sync.Mutex
	synced   bool
	all      map[string]bool           // row keys of all services
	services map[string]*busv1.Service // those that rules want, by row key
	// endpoints are keys of endpoint rows by the row key of their service; the
	// rows themselves stay in the log's copy.
	endpoints map[string]map[string]bool
	changed   chan struct{} // one token: something changed since it was taken
}

// Tables are those that a feed reads.
func Tables() []busv1.Table {
	return []busv1.Table{
		busv1.Table_TABLE_SERVICES, busv1.Table_TABLE_ENDPOINTS, busv1.Table_TABLE_WORKLOADS, busv1.Table_TABLE_TEMPLATES,
	}
}

// New makes a feed of what log reads, for the services that rules want.
func New(log log, rules derive.Rules) *Feed {
	return &Feed{log: log, rules: rules, changed: make(chan struct{}, 1)}
}

// Changed gets a token after every change that may matter.
func (f *Feed) Changed() <-chan struct{} { return f.changed }

// Look gives Changed a token for a change that is not in the log.
func (f *Feed) Look() {
	select {
	case f.changed <- struct{}{}:
	default: // there is one already
	}
}

// Run applies cuts until ctx ends.
func (f *Feed) Run(ctx context.Context) error {
	for cut, err := range f.log.Read(ctx) {
		if err != nil {
			return fmt.Errorf("reading the other cluster: %w", err)
		}
		if f.apply(cut) {
			f.Look()
		}
	}
	return context.Cause(ctx)
}

// apply tells whether anything changed that may matter.
func (f *Feed) apply(cut bus.Cut) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	matters := cut.Complete
	if cut.Complete {
		f.synced = true
		f.all, f.services, f.endpoints = map[string]bool{}, map[string]*busv1.Service{}, map[string]map[string]bool{}
	}
	for _, c := range cut.Changes {
		switch c.Table {
		case busv1.Table_TABLE_SERVICES:
			matters = f.service(c) || matters
		case busv1.Table_TABLE_ENDPOINTS:
			f.endpoint(c)
			matters = true
		case busv1.Table_TABLE_WORKLOADS, busv1.Table_TABLE_TEMPLATES:
			matters = true
		default:
		}
	}
	return matters
}

func (f *Feed) service(c bus.Change) bool {
	_, had := f.services[c.Key]
	delete(f.services, c.Key)
	if c.Value == nil {
		delete(f.all, c.Key)
		return had
	}
	f.all[c.Key] = true
	row := &busv1.Service{}
	if err := proto.Unmarshal(c.Value, row); err != nil {
		slog.Error("service row cannot be read", obs.Object(c.Key), obs.Error(err))
		return had
	}
	if !f.rules.Wanted(row) {
		return had
	}
	f.services[c.Key] = row
	return true
}

func (f *Feed) endpoint(c bus.Change) {
	parts := bus.Parts(c.Key)
	if len(parts) < 2 {
		return
	}
	of := bus.Key(parts[0], parts[1])
	if c.Value == nil {
		delete(f.endpoints[of], c.Key)
		if len(f.endpoints[of]) == 0 {
			delete(f.endpoints, of)
		}
		return
	}
	if f.endpoints[of] == nil {
		f.endpoints[of] = map[string]bool{}
	}
	f.endpoints[of][c.Key] = true
}

// Select changes the rules by which services are wanted.
func (f *Feed) Select(rules derive.Rules) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rules = rules
	if !f.synced {
		return
	}
	f.services = map[string]*busv1.Service{}
	for key := range f.all {
		row := &busv1.Service{}
		if f.row(busv1.Table_TABLE_SERVICES, key, row) && rules.Wanted(row) {
			f.services[key] = row
		}
	}
}

// Tables gathers the exported services and what stands behind them; false until
// a complete state has been read. A row that the log holds in a newer version
// than this feed has seen is no harm: the feed will say that it changed.
func (f *Feed) Tables() (derive.Tables, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.synced {
		return derive.Tables{}, false
	}
	t := derive.Tables{
		Endpoints: map[string][]*busv1.Endpoint{},
		Workloads: map[string]*busv1.Workload{},
		Templates: map[string]*busv1.Template{},
	}
	for key, svc := range f.services {
		t.Services = append(t.Services, svc)
		if !f.rules.Endpoints(svc) {
			continue
		}
		name := svc.GetNamespace() + "/" + svc.GetName()
		for ep := range f.endpoints[key] {
			row := &busv1.Endpoint{}
			if !f.row(busv1.Table_TABLE_ENDPOINTS, ep, row) {
				continue
			}
			t.Endpoints[name] = append(t.Endpoints[name], row)
			f.workload(&t, row.GetWorkload())
		}
	}
	return t, true
}

func (f *Feed) workload(t *derive.Tables, key string) {
	if key == "" || t.Workloads[key] != nil {
		return
	}
	w := &busv1.Workload{}
	if !f.row(busv1.Table_TABLE_WORKLOADS, key, w) {
		return
	}
	t.Workloads[key] = w
	if t.Templates[w.GetTemplate()] == nil {
		tmpl := &busv1.Template{}
		if f.row(busv1.Table_TABLE_TEMPLATES, w.GetTemplate(), tmpl) {
			t.Templates[w.GetTemplate()] = tmpl
		}
	}
}

func (f *Feed) row(table busv1.Table, key string, into proto.Message) bool {
	value, ok := f.log.Row(table, key)
	if !ok {
		return false
	}
	if err := proto.Unmarshal(value, into); err != nil {
		slog.Error("row cannot be read", obs.Table(table.String()), obs.Object(key), obs.Error(err))
		return false
	}
	return true
}
