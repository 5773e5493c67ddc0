// Package patchtest applies patches as they are on the wire, so that tests look
// at what a pod becomes.
package patchtest

import (
	"encoding/json"

	"github.com/weftmesh/weft/services/injector/internal/patch"
)

// Apply applies a patch of RFC 6902 that has nothing but add operations to a
// JSON document.
func Apply(doc, wire []byte) ([]byte, error) {
	var root any
	if err := json.Unmarshal(doc, &root); err != nil {
		return nil, err
	}
	var ops []patch.Op
	if err := json.Unmarshal(wire, &ops); err != nil {
		return nil, err
	}
	after, err := patch.Apply(root, ops)
	if err != nil {
		return nil, err
	}
	return json.MarshalIndent(after, "", "  ")
}
