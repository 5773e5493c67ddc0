// Package patchtest applies patches, so that tests look at what a pod becomes.
package patchtest

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Apply applies a patch of RFC 6902 that has nothing but add operations to a
// JSON document.
func Apply(doc, patch []byte) ([]byte, error) {
	var root any
	if err := json.Unmarshal(doc, &root); err != nil {
		return nil, err
	}
	var ops []struct {
		Op    string
		Path  string
		Value any
	}
	if err := json.Unmarshal(patch, &ops); err != nil {
		return nil, err
	}
	for i, op := range ops {
		if op.Op != "add" || !strings.HasPrefix(op.Path, "/") {
			return nil, fmt.Errorf("operation %d: %s %q is not an add", i, op.Op, op.Path)
		}
		tokens := strings.Split(op.Path[1:], "/")
		for t := range tokens {
			tokens[t] = strings.NewReplacer("~1", "/", "~0", "~").Replace(tokens[t])
		}
		next, err := add(root, tokens, op.Value)
		if err != nil {
			return nil, fmt.Errorf("operation %d: adding %s: %w", i, op.Path, err)
		}
		root = next
	}
	return json.MarshalIndent(root, "", "  ")
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
		if len(rest) == 0 {
			i := len(at)
			if head != "-" {
				n, err := strconv.Atoi(head)
				if err != nil || n < 0 || n > len(at) {
					return nil, fmt.Errorf("index %q is outside of a list of %d", head, len(at))
				}
				i = n
			}
			return slices.Insert(at, i, value), nil
		}
		n, err := strconv.Atoi(head)
		if err != nil || n < 0 || n >= len(at) {
			return nil, fmt.Errorf("index %q is outside of a list of %d", head, len(at))
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
