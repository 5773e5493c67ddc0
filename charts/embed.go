// Package charts holds Weft's Helm charts and renders them.
//
// The command `weft install`, the tests here, and whoever runs helm get the same
// manifests from the same templates: Render is helm's own engine without its
// release storage. It never talks to a cluster; what templates look up there
// comes in as a function.
package charts

import "embed"

// FS holds each chart in a directory of its name.
//
//go:embed all:weft-crds all:weft-control-plane all:weft-cni
var FS embed.FS

// The charts in FS.
const (
	CRDs         = "weft-crds"
	ControlPlane = "weft-control-plane"
	CNI          = "weft-cni"
)
