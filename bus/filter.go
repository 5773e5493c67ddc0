package bus

import (
	"bytes"
	"slices"
	"strings"

	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
)

// only names the tables that a reader keeps; nil means all.
type only map[busv1.Table]struct{}

func onlyOf(tables []busv1.Table) only {
	if len(tables) == 0 {
		return nil
	}
	o := make(only, len(tables))
	for _, t := range tables {
		o[t] = struct{}{}
	}
	return o
}

func (o only) keeps(t busv1.Table) bool {
	if o == nil {
		return true
	}
	_, ok := o[t]
	return ok
}

// of gives the changes that are kept. They are copies: a row is a part of the
// body that it came in, and would keep all of that in memory.
func (o only) of(changes []Change) []Change {
	if o == nil {
		return changes
	}
	kept := slices.DeleteFunc(changes, func(c Change) bool { return !o.keeps(c.Table) })
	for i, c := range kept {
		kept[i] = Change{Table: c.Table, Key: strings.Clone(c.Key), Value: bytes.Clone(c.Value)}
	}
	return slices.Clone(kept)
}

// nothing is the body of a cut that has no kept change.
var nothing = [][]byte{pack(nil)}

// past is a cut as the ring of a narrowed copy has it: its own changes must be
// put over a snapshot again, nobody else's question is answered from it.
func (o only) past(e entry, kept []Change) entry {
	if o == nil {
		return e
	}
	e.trace, e.parts = "", nothing
	if len(kept) > 0 {
		e.parts, _ = split(kept, 0)
	}
	return e
}
