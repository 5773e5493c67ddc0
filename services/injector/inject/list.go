package inject

import (
	"errors"
	"fmt"
	"maps"
	"strings"
)

// each applies what is done to one object to all of a List, or to the object
// itself. A refusal is noted and the others are looked at, too.
func each(in Object, one func(Object) (Object, Report, error)) (Object, []Report, error) {
	items, isList := in["items"].([]any)
	if kind, _ := in["kind"].(string); !isList || !strings.HasSuffix(kind, "List") {
		out, report, err := one(in)
		return out, []Report{report}, err
	}
	out := maps.Clone(in)
	var reports []Report
	var failed error
	done := make([]any, len(items))
	for i, item := range items {
		object, ok := item.(Object)
		if !ok {
			return nil, nil, fmt.Errorf("item %d of the list is not an object", i)
		}
		next, several, err := each(object, one)
		reports = append(reports, several...)
		failed = errors.Join(failed, err)
		done[i] = next
	}
	out["items"] = done
	if failed != nil {
		return nil, reports, failed
	}
	return out, reports, nil
}
