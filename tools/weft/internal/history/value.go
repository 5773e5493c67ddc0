package history

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/weftmesh/weft/bus"
	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
)

// id names a row.
type id struct {
	table busv1.Table
	key   string
}

// rows are those of an object at one moment.
type rows map[id][]byte

func (r rows) apply(changes []bus.Change) {
	for _, c := range changes {
		if c.Value == nil {
			delete(r, id{c.Table, c.Key})
		} else {
			r[id{c.Table, c.Key}] = c.Value
		}
	}
}

// view is what the rows say: for each row of the object its fields. A template
// is shown as a part of the workload that names it.
type view map[id]map[string]any

func (r rows) view(side rows) view {
	v := make(view)
	for row, value := range r {
		fields := decode(row.table, value)
		if hash, ok := fields["template"].(string); ok && row.table == busv1.Table_TABLE_WORKLOADS {
			shared := map[string]any{"key": hash}
			if t, ok := side[id{busv1.Table_TABLE_TEMPLATES, hash}]; ok {
				maps.Copy(shared, decode(busv1.Table_TABLE_TEMPLATES, t))
			}
			fields["template"] = shared
		}
		v[row] = fields
	}
	return v
}

// unread is the field under which is shown what this version can't read.
const unread = "(of a later version)"

// decode reads a row. What a later version of the mesh wrote, a table or a field,
// is shown by its size.
func decode(table busv1.Table, value []byte) map[string]any {
	info, ok := bus.Info(table)
	if !ok {
		return map[string]any{unread: fmt.Sprintf("%d bytes of table %d", len(value), table)}
	}
	m := info.New()
	if err := proto.Unmarshal(value, m); err != nil {
		return map[string]any{unread: fmt.Sprintf("%d bytes that are no row of %s", len(value), info.Name)}
	}
	// With what is false, since "ready: false" says more than nothing.
	text, err := protojson.MarshalOptions{EmitDefaultValues: true}.Marshal(m)
	fields := make(map[string]any)
	if err == nil {
		d := json.NewDecoder(bytes.NewReader(text))
		d.UseNumber()
		err = d.Decode(&fields)
	}
	if err != nil {
		return map[string]any{unread: fmt.Sprintf("%d bytes that can't be shown: %v", len(value), err)}
	}
	fields = prune(fields).(map[string]any)
	if more := m.ProtoReflect().GetUnknown(); len(more) > 0 {
		fields[unread] = fmt.Sprintf("%d bytes: %x", len(more), []byte(more[:min(len(more), 32)]))
	}
	return fields
}

// prune leaves out what is empty.
func prune(value any) any {
	switch v := value.(type) {
	case map[string]any:
		for key, inner := range v {
			if empty(inner) {
				delete(v, key)
			} else {
				v[key] = prune(inner)
			}
		}
	case []any:
		for i, inner := range v {
			v[i] = prune(inner)
		}
	}
	return value
}

func empty(value any) bool {
	switch v := value.(type) {
	case nil:
		return true
	case string:
		return v == "" || v == "0" // a large number is a text
	case json.Number:
		return v == "0"
	case []any:
		return len(v) == 0
	case map[string]any:
		return len(v) == 0
	}
	return false
}

// flat are the leaves of fields by their paths.
func flat(fields map[string]any) map[string]string {
	out := make(map[string]string)
	var walk func(path string, value any)
	walk = func(path string, value any) {
		switch v := value.(type) {
		case map[string]any:
			for key, inner := range v {
				walk(path+"."+key, inner)
			}
		case []any:
			for i, inner := range v {
				walk(path+"["+strconv.Itoa(i)+"]", inner)
			}
		default:
			out[path] = fmt.Sprint(v)
		}
	}
	for key, value := range fields {
		walk(key, value)
	}
	return out
}

// Field is a field that differs. One that was or is not there is nil.
type Field struct {
	Path   string  `json:"path"`
	Before *string `json:"before"`
	After  *string `json:"after"`
}

// differing are the fields that differ, by their paths.
func differing(before, after map[string]any) []Field {
	was, is := flat(before), flat(after)
	var out []Field
	for path, b := range was {
		if a, ok := is[path]; !ok {
			out = append(out, Field{path, &b, nil})
		} else if a != b {
			out = append(out, Field{path, &b, &a})
		}
	}
	for path, a := range is {
		if _, ok := was[path]; !ok {
			out = append(out, Field{path, nil, &a})
		}
	}
	slices.SortFunc(out, func(a, b Field) int { return natural(a.Path, b.Path) })
	return out
}

// natural compares paths so that [10] comes after [9].
func natural(a, b string) int {
	for a != "" && b != "" {
		x, restA := number(a)
		y, restB := number(b)
		if restA != a && restB != b {
			if x != y {
				return x - y
			}
			a, b = restA, restB
			continue
		}
		if a[0] != b[0] {
			return int(a[0]) - int(b[0])
		}
		a, b = a[1:], b[1:]
	}
	return len(a) - len(b)
}

// number takes the digits at the front of a text, nine at most.
func number(s string) (n int, rest string) {
	i := 0
	for i < len(s) && i < 9 && s[i] >= '0' && s[i] <= '9' {
		n, i = n*10+int(s[i]-'0'), i+1
	}
	return n, s[i:]
}
