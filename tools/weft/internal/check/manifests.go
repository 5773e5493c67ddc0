package check

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/weftmesh/weft/charts"
)

// clusterKinds are the kinds without a namespace that the charts have.
var clusterKinds = []string{
	"Namespace", "ClusterRole", "ClusterRoleBinding", "CustomResourceDefinition", "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration",
}

// clusterManifests are what an installation with the charts' own values would
// create without a namespace.
func clusterManifests(o charts.Options) ([]*unstructured.Unstructured, error) {
	var all []*unstructured.Unstructured
	for _, name := range []string{charts.CRDs, charts.ControlPlane} {
		manifests, err := charts.Render(name, nil, o)
		if err != nil {
			return nil, fmt.Errorf("making the manifests of %s: %w", name, err)
		}
		for _, m := range manifests {
			if !slices.Contains(clusterKinds, m.Kind) {
				continue
			}
			obj := &unstructured.Unstructured{}
			if err := yaml.Unmarshal([]byte(m.YAML), &obj.Object); err != nil {
				return nil, fmt.Errorf("reading %s %s of %s: %w", m.Kind, m.Name, name, err)
			}
			all = append(all, obj)
		}
	}
	return all, nil
}
