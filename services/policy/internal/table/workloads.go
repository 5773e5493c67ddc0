package table

import (
	"runtime"
	"slices"
	"sync"

	"github.com/weftmesh/weft/bus"
	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
	"github.com/weftmesh/weft/services/policy/internal/derive/allow"
)

// decodeEach is how many changes are worth a goroutine: about a millisecond's.
const decodeEach = 1000

// digested is the workload of one change: nil if it is removed, not read if the
// change is of another table or can't be read.
type digested struct {
	is   *allow.Workload
	read bool
}

// decodeWorkloads digests the workloads among changes, each at its own place.
// They are most of what a replica reads at its start, so all processors share
// it. Nothing of the tables is read.
func decodeWorkloads(changes []bus.Change) ([]digested, []error) {
	if !slices.ContainsFunc(changes, func(c bus.Change) bool { return c.Table == busv1.Table_TABLE_WORKLOADS }) {
		return nil, nil
	}
	each := max(decodeEach, 1+len(changes)/runtime.GOMAXPROCS(0))
	out := make([]digested, len(changes))
	bad := make([][]error, 1+len(changes)/each)
	var parts sync.WaitGroup
	for n := range bad {
		from := n * each
		to := min(from+each, len(changes))
		decode := func() { bad[n] = digest(changes[from:to], out[from:to]) }
		if to == len(changes) {
			decode() // the last part, and so a small cut, needs no goroutine
			break
		}
		parts.Go(decode)
	}
	parts.Wait()
	return out, slices.Concat(bad...)
}

// digest reads one part. Pods come in the order of their names, so those of one
// owner follow each other and share what they have in common.
func digest(changes []bus.Change, out []digested) (bad []error) {
	last := &allow.Workload{}
	for i, c := range changes {
		if c.Table != busv1.Table_TABLE_WORKLOADS {
			continue
		}
		row, err := decode[busv1.Workload](c)
		if err != nil {
			bad = append(bad, err)
			continue
		}
		out[i].read = true
		if row == nil {
			continue
		}
		w := allow.NewWorkload(row)
		if w.TemplateKey == last.TemplateKey {
			w.TemplateKey = last.TemplateKey
		}
		if w.Namespace == last.Namespace {
			w.Namespace = last.Namespace
		}
		out[i].is, last = w, w
	}
	return bad
}
