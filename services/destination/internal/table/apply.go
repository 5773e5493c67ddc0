package table

import (
	"fmt"
	"net/netip"
	"runtime"
	"slices"
	"sync"

	"github.com/weftmesh/weft/bus"
	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
	"github.com/weftmesh/weft/services/destination/internal/row"
)

// BadRow is one row that could not be read. The row it would have replaced
// stays: one bad object never costs more than itself.
type BadRow struct {
	Table busv1.Table
	Key   string
	Err   error
}

// change is a decoded row, ready to be put in place.
type change func(t *Table, dirty *dirty)

// Apply takes one cut of the log. Decoding happens before the lock is taken, so
// that readers wait only for pointers to be moved. It never waits for a reader
// of the answers. Only one goroutine may call it.
func (t *Table) Apply(cut bus.Cut) []BadRow {
	all := cut.Changes
	if cut.Complete {
		// Only this goroutine writes, so reading needs no lock.
		if gone := t.absent(all); len(gone) > 0 {
			all = append(gone, all...)
		}
	}
	changes, bad := t.decodeAll(all)

	t.mu.Lock()
	defer t.mu.Unlock()
	if t.cuts == 0 {
		t.expect(all)
	}
	t.cuts++
	d := t.dirty()
	for _, apply := range changes {
		if apply != nil {
			apply(t, d)
		}
	}
	if cut.Complete {
		t.synced = true
	}
	t.wake(d, &Change{ObservedAt: cut.ObservedAt, Trace: cut.Trace})
	return bad
}

// expect makes room in an empty table: a map that grows to a large cluster's size
// by itself is filled twice.
func (t *Table) expect(all []bus.Change) {
	rows := make(map[busv1.Table]int)
	for _, c := range all {
		rows[c.Table]++
	}
	t.services = make(map[string]*service, rows[busv1.Table_TABLE_SERVICES])
	t.workloads = make(map[string]*workload, rows[busv1.Table_TABLE_WORKLOADS])
	t.templates = make(map[string]*template, rows[busv1.Table_TABLE_TEMPLATES])
	t.podIPs.first = make(map[netip.Addr]*workload, rows[busv1.Table_TABLE_WORKLOADS])
}

// decodeEach is how many changes are worth a goroutine: a millisecond's.
const decodeEach = 1000

// decodeAll turns changes into what to do, each at its own place, nil for nothing.
// A large cluster's first cut is most of a replica's start, so all processors
// share it.
func (t *Table) decodeAll(all []bus.Change) ([]change, []BadRow) {
	each := max(decodeEach, 1+len(all)/runtime.GOMAXPROCS(0))
	changes := make([]change, len(all))
	bad := make([][]BadRow, 0, 1+len(all)/each)
	var parts sync.WaitGroup
	for from := 0; from < len(all); from += each {
		bad = append(bad, nil)
		to, wrong := min(from+each, len(all)), &bad[len(bad)-1]
		decode := func() {
			var with row.Decoder
			for i := from; i < to; i++ {
				apply, err := t.decode(&with, all[i])
				if err != nil {
					*wrong = append(*wrong, BadRow{Table: all[i].Table, Key: all[i].Key, Err: err})
					continue
				}
				changes[i] = apply
			}
		}
		if to == len(all) {
			decode() // the last part, and so a small cut, needs no goroutine
		} else {
			parts.Go(decode)
		}
	}
	parts.Wait()
	return changes, slices.Concat(bad...)
}

// decode turns a change of the log into what to do with it; nil for the tables
// that discovery does not read. Like Apply it reads without the lock.
func (t *Table) decode(with *row.Decoder, c bus.Change) (change, error) {
	switch c.Table {
	case busv1.Table_TABLE_SERVICES:
		return decodeService(c)
	case busv1.Table_TABLE_ENDPOINTS:
		return decodeEndpoint(with, c)
	case busv1.Table_TABLE_WORKLOADS:
		return t.decodeWorkload(with, c)
	case busv1.Table_TABLE_TEMPLATES:
		return decodeTemplate(c)
	case busv1.Table_TABLE_NODES:
		return decodeNode(c)
	case busv1.Table_TABLE_SERVERS:
		return decodeServer(c)
	case busv1.Table_TABLE_SERVICE_PROFILES:
		return decodeProfile(c)
	case busv1.Table_TABLE_TRAFFIC_SPLITS:
		return decodeSplit(c)
	case busv1.Table_TABLE_CLUSTERS:
		return decodeCluster(c)
	default:
		return nil, nil
	}
}

func decodeService(c bus.Change) (change, error) {
	var next *row.Service
	if c.Value != nil {
		s, err := row.DecodeService(c.Key, c.Value)
		if err != nil {
			return nil, err
		}
		next = s
	}
	return func(t *Table, d *dirty) { t.putService(c.Key, next, d) }, nil
}

// decodeEndpoint takes the service from the key, as a removal has nothing else.
func decodeEndpoint(with *row.Decoder, c bus.Change) (change, error) {
	parts := bus.Parts(c.Key)
	if len(parts) != 4 {
		return nil, fmt.Errorf("reading key %q: want namespace, service, slice and address", c.Key)
	}
	namespace, owner := parts[0], ServiceKey(parts[0], parts[1])
	var next *row.Endpoint
	if c.Value != nil {
		e, err := with.Endpoint(c.Key, c.Value)
		if err != nil {
			return nil, err
		}
		next = e
	}
	return func(t *Table, d *dirty) { t.putEndpoint(namespace, owner, c.Key, next, d) }, nil
}

// decodeWorkload keeps the key that the row had, which the log keeps too, rather
// than an equal one that came with the change.
func (t *Table) decodeWorkload(with *row.Decoder, c bus.Change) (change, error) {
	if w := t.workloads[c.Key]; w != nil && w.row != nil {
		c.Key = w.row.Key
	}
	var next *row.Workload
	if c.Value != nil {
		w, err := with.Workload(c.Key, c.Value)
		if err != nil {
			return nil, err
		}
		next = w
	}
	return func(t *Table, d *dirty) { t.putWorkload(c.Key, next, d) }, nil
}

func decodeTemplate(c bus.Change) (change, error) {
	var next *row.Template
	if c.Value != nil {
		tpl, err := row.DecodeTemplate(c.Value)
		if err != nil {
			return nil, err
		}
		next = tpl
	}
	return func(t *Table, d *dirty) { t.putTemplate(c.Key, next, d) }, nil
}

func decodeNode(c bus.Change) (change, error) {
	var next *row.Node
	if c.Value != nil {
		n, err := row.DecodeNode(c.Value)
		if err != nil {
			return nil, err
		}
		next = n
	}
	return func(t *Table, d *dirty) {
		if next == nil {
			delete(t.nodes, c.Key)
		} else {
			t.nodes[c.Key] = next
		}
		if parts := bus.Parts(c.Key); len(parts) == 1 {
			d.add(Node(parts[0]))
		}
	}, nil
}

func decodeServer(c bus.Change) (change, error) {
	parts := bus.Parts(c.Key)
	if len(parts) != 2 {
		return nil, fmt.Errorf("reading key %q: want namespace and name", c.Key)
	}
	var next *row.Server
	if c.Value != nil {
		s, err := row.DecodeServer(c.Value)
		if err != nil {
			return nil, err
		}
		next = s
	}
	return func(t *Table, d *dirty) { t.putServer(parts[0], c.Key, next, d) }, nil
}
