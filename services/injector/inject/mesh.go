package inject

import (
	"github.com/weftmesh/weft/services/injector/internal/values"
)

// Values are the mesh's settings, under the names of Linkerd's chart.
type Values = values.Values

// ParseValues reads the settings as ConfigMap linkerd-config has them under the
// key values (YAML). Keys that are not known are passed over, missing ones have
// their defaults; version is used where no version of an image is given.
func ParseValues(yaml []byte, version string) (*Values, error) {
	return values.Parse(yaml, version)
}

// DefaultValues are the settings of a mesh that sets none.
func DefaultValues(version string) *Values { return values.Default(version) }

// Mesh is what a proxy is made from, beside the object that gets it.
type Mesh struct {
	Values *Values
	// Anchors is the trust bundle, PEM.
	Anchors string
	// ControllerNamespace is the control plane's; empty means linkerd.
	ControllerNamespace string
}

func (m Mesh) controller() string {
	if m.ControllerNamespace != "" {
		return m.ControllerNamespace
	}
	return "linkerd"
}

// Options are what a person asked for beside the mesh's own settings.
type Options struct {
	// Config are annotations to add, by their full name: one config.linkerd.io
	// annotation for each setting that is to differ from the mesh's.
	Config map[string]string
	// Ingress makes the annotation linkerd.io/inject say ingress, not enabled.
	Ingress bool
	// Namespace is the one of objects that name none, as kubectl would place
	// them; it may be empty.
	Namespace string
}
