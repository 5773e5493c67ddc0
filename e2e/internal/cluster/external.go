package cluster

import (
	"context"

	"github.com/weftmesh/weft/services/kit/say"
)

// External is a cluster that somebody else started, by its KUBECONFIG. Images
// can't be loaded into it: its nodes pull them from a registry.
type External string

var _ Target = External("")

// Kubeconfig is the file itself.
func (e External) Kubeconfig() string { return string(e) }

// Load always fails.
func (e External) Load(context.Context, ...string) error {
	return &say.Problem{
		What: "images can't be loaded into the cluster of " + string(e),
		Why:  "only clusters that weft-cluster started take archives; others pull from a registry",
		Next: "push the images (deploy/images) and name the registry",
	}
}
