package charts

import (
	"context"

	"helm.sh/helm/v3/pkg/engine"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
)

// lookups answers helm's engine, which asks a dynamic client, from a function.
type lookups struct {
	find func(apiVersion, kind, namespace, name string) (map[string]any, error)
}

var _ engine.ClientProvider = lookups{}

// GetClientFor implements engine.ClientProvider. All that the charts look for
// is namespaced.
func (l lookups) GetClientFor(apiVersion, kind string) (dynamic.NamespaceableResourceInterface, bool, error) {
	return found{find: l.find, apiVersion: apiVersion, kind: kind}, true, nil
}

// found is the one method of a dynamic client that a template's lookup calls.
type found struct {
	dynamic.NamespaceableResourceInterface
	find                        func(apiVersion, kind, namespace, name string) (map[string]any, error)
	apiVersion, kind, namespace string
}

// Namespace implements dynamic.NamespaceableResourceInterface.
func (f found) Namespace(namespace string) dynamic.ResourceInterface {
	f.namespace = namespace
	return f
}

// Get implements dynamic.ResourceInterface.
func (f found) Get(_ context.Context, name string, _ metav1.GetOptions, _ ...string) (*unstructured.Unstructured, error) {
	object, err := f.find(f.apiVersion, f.kind, f.namespace, name)
	if err != nil {
		return nil, err
	}
	if object == nil {
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: f.kind}, name)
	}
	return &unstructured.Unstructured{Object: object}, nil
}
