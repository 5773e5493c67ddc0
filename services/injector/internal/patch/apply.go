package patch

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Apply gives a JSON document after a patch that has nothing but add
// operations. The document is changed.
func Apply(doc any, ops []Op) (any, error) {
	unescape := strings.NewReplacer("~1", "/", "~0", "~")
	for i, op := range ops {
		if op.Op != "add" || !strings.HasPrefix(op.Path, "/") {
			return nil, fmt.Errorf("operation %d: %s %q is not an add", i, op.Op, op.Path)
		}
		tokens := strings.Split(op.Path[1:], "/")
		for t := range tokens {
			tokens[t] = unescape.Replace(tokens[t])
		}
		value, err := plain(op.Value)
		if err != nil {
			return nil, fmt.Errorf("operation %d: writing the value of %s: %w", i, op.Path, err)
		}
		if doc, err = add(doc, tokens, value); err != nil {
			return nil, fmt.Errorf("operation %d: adding %s: %w", i, op.Path, err)
		}
	}
	return doc, nil
}

// plain turns a typed value into what decoding its JSON gives.
func plain(value any) (any, error) {
	b, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	var out any
	if err := json.Unmarshal(b, &out); err != nil {
		return nil, err
	}
	return out, nil
}

func add(at any, tokens []string, value any) (any, error) {
	if len(tokens) == 0 {
		return value, nil
	}
	head, rest := tokens[0], tokens[1:]
	switch at := at.(type) {
	case map[string]any:
		child, ok := at[head]
		if !ok && len(rest) > 0 {
			return nil, fmt.Errorf("there is no %q", head)
		}
		next, err := add(child, rest, value)
		if err != nil {
			return nil, err
		}
		at[head] = next
		return at, nil
	case []any:
		if head == "-" && len(rest) == 0 {
			return append(at, value), nil
		}
		n, err := strconv.Atoi(head)
		if err != nil || n < 0 || n > len(at) || n == len(at) && len(rest) > 0 {
			return nil, fmt.Errorf("index %q is outside of a list of %d", head, len(at))
		}
		if len(rest) == 0 {
			return slices.Insert(at, n, value), nil
		}
		next, err := add(at[n], rest, value)
		if err != nil {
			return nil, err
		}
		at[n] = next
		return at, nil
	}
	return nil, errors.New("neither an object nor a list")
}
