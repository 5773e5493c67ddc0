// Package patch builds the JSON patch that gives a pod its proxy.
//
// It is pure, and structural: containers, volumes and annotations are typed
// values that encoding/json writes. No text of a user ever lands in a template,
// so no annotation can break the patch.
package patch

import (
	"maps"
	"slices"
	"strings"
)

// Op is one operation of RFC 6902.
type Op struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`
}

// script collects operations; each is an add below the path at.
type script struct {
	at  string
	ops []Op
}

func (s *script) add(path string, value any) {
	s.ops = append(s.ops, Op{Op: "add", Path: s.at + path, Value: value})
}

// members adds the members of a map one by one, in the order of their keys;
// first the map itself if it is not there.
func (s *script) members(path string, there bool, values map[string]string) {
	if len(values) == 0 {
		return
	}
	if !there {
		s.add(path, map[string]string{})
	}
	for _, key := range slices.Sorted(maps.Keys(values)) {
		s.add(path+"/"+escape(key), values[key])
	}
}

// escape writes a key as a reference token of RFC 6901.
func escape(key string) string {
	return strings.NewReplacer("~", "~0", "/", "~1").Replace(key)
}

// Annotate is the patch that adds one annotation to an object.
func Annotate(there map[string]string, key, value string) []Op {
	var s script
	s.members("/metadata/annotations", there != nil, map[string]string{key: value})
	return s.ops
}
