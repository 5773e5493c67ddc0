package check

import "github.com/weftmesh/weft/tools/weft/internal/check/engine"

// Hints is where an anchor is explained: CHECKS.md beside this file.
const Hints = "https://github.com/weftmesh/weft/blob/main/tools/weft/internal/check/CHECKS.md#"

// Set is which checks are asked (spec/features.md §3).
type Set int

// The sets.
const (
	Default Set = iota // the control plane works
	Pre                // one could be installed
	CRDs               // only its CRDs are installed
	Proxy              // the control plane and the data plane work
)

// Categories lists what is asked for a set, in order. Those that begin with
// "weft-" are ours; all others, their checks and their order are Linkerd's.
func (w *World) Categories(set Set) []engine.Category {
	base := []engine.Category{w.api(), w.version(), w.gatewayAPI()}
	switch set {
	case Pre:
		all := append(base, w.preInstall())
		if w.CNI {
			all = append(all, w.cniPlugin())
		}
		return append(all, w.cliVersion())
	case CRDs:
		return append(base, w.crds(), w.cliVersion())
	}
	all := append(base, w.existence(), w.linkerdConfig(), w.cniPlugin(), w.identity(), w.webhooks())
	if set == Proxy {
		all = append(all, w.identityDataPlane())
	}
	all = append(all, w.cliVersion())
	if set == Default {
		all = append(all, w.controlPlaneVersion())
	}
	all = append(all, w.controlPlaneProxy())
	if set == Proxy {
		// Linkerd has a category "linkerd-opaque-ports-definition" too, which is
		// empty: its check is one of the data plane's.
		all = append(all, w.dataPlane())
	}
	all = append(all, w.ha())
	if set == Default {
		all = append(all, w.extensionNamespaces())
	}
	return append(all, w.bus(), w.log())
}
