package state

import (
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/weftmesh/weft/bus"
	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
	"github.com/weftmesh/weft/services/watcher/internal/shape"
)

// Adopt takes rows of an earlier life of the log into the truth, before this
// process leads it: those of objects that are bad now and were good then, and
// those of objects that the source can't see, of the kinds that it hides. Unknown
// is never taken for gone.
func (s *State) Adopt(log []bus.Change, hides func(shape.Kind) bool) {
	kept := make(map[shape.ID][]bus.Change)
	templates := make(map[string][]byte)
	for _, c := range log {
		if c.Table == busv1.Table_TABLE_TEMPLATES {
			templates[c.Key] = c.Value
			continue
		}
		id, ok := shape.Maker(c.Table, c.Key)
		if !ok {
			continue
		}
		k := s.known[id]
		_, bad := s.skipped[id]
		if (k != nil && bad && len(k.refs) == 0) || (k == nil && hides(id.Kind)) {
			kept[id] = append(kept[id], c)
		}
	}
	for id, rows := range kept {
		k := s.known[id]
		for _, c := range rows {
			s.keep(k, c)
			if t := templateOf(c); t != "" && templates[t] != nil {
				s.keep(k, bus.Change{Table: busv1.Table_TABLE_TEMPLATES, Key: t, Value: templates[t]})
			}
		}
	}
}

// keep adds a row to what k makes, or to the orphans when there is no k.
func (s *State) keep(k *object, c bus.Change) {
	at := ref{c.Table, c.Key}
	if k != nil {
		s.put(at, c.Value, time.Time{})
		k.refs = append(k.refs, at)
		return
	}
	if _, already := s.orphans[at]; already || (s.rows[at] != nil && at.table != busv1.Table_TABLE_TEMPLATES) {
		return
	}
	s.put(at, c.Value, time.Time{})
	s.orphans[at] = struct{}{}
}

// See drops the rows kept for what the source could not see, of the kinds that it
// hides no more.
func (s *State) See(seen time.Time, hides func(shape.Kind) bool) {
	for at := range s.orphans {
		if hidden(at, hides) {
			continue
		}
		delete(s.orphans, at)
		s.drop(at, seen)
	}
}

func hidden(at ref, hides func(shape.Kind) bool) bool {
	if at.table == busv1.Table_TABLE_TEMPLATES { // of some workload
		return hides(shape.Pod) || hides(shape.ExternalWorkloads)
	}
	id, _ := shape.Maker(at.table, at.key)
	return hides(id.Kind)
}

func templateOf(c bus.Change) string {
	if c.Table != busv1.Table_TABLE_WORKLOADS {
		return ""
	}
	var w busv1.Workload
	if proto.Unmarshal(c.Value, &w) != nil {
		return ""
	}
	return w.Template
}
