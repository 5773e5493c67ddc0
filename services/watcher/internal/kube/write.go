package kube

import (
	"context"
	"fmt"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/weftmesh/weft/services/watcher/internal/shape"
)

// statusManager is who owns what is written of a status: Linkerd's name for it.
const statusManager = "policy-controller"

// PatchStatus changes the status of an object of a custom kind by a merge patch,
// in the version in which the kind is read.
func (s *Source) PatchStatus(ctx context.Context, id shape.ID, patch []byte) error {
	s.mu.RLock()
	f := s.feeds[id.Kind]
	s.mu.RUnlock()
	if f == nil || !f.info.Custom {
		return fmt.Errorf("writing the status of %s: the API server has no such kind", id)
	}
	gvr := schema.GroupVersionResource{Group: f.info.Group, Version: f.version, Resource: f.info.Resource}
	_, err := s.clients.Writes.Resource(gvr).Namespace(id.Namespace).
		Patch(ctx, id.Name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: statusManager}, "status")
	return err
}

// Slices is the way to write EndpointSlices.
func (s *Source) Slices() SliceWriter { return s.clients.SliceWrites }

// sliceAPI writes EndpointSlices; it has a client, and so a rate, of its own.
type sliceAPI struct{ api rest.Interface }

// Create makes a slice.
func (a sliceAPI) Create(ctx context.Context, es *discoveryv1.EndpointSlice) (name string, err error) {
	out := new(discoveryv1.EndpointSlice)
	err = a.api.Post().Namespace(es.Namespace).Resource("endpointslices").Body(es).Do(ctx).Into(out)
	return out.Name, err
}

// Update writes a slice over the version of it that was read.
func (a sliceAPI) Update(ctx context.Context, es *discoveryv1.EndpointSlice) error {
	return a.api.Put().Namespace(es.Namespace).Resource("endpointslices").Name(es.Name).Body(es).Do(ctx).Error()
}

// Delete removes a slice.
func (a sliceAPI) Delete(ctx context.Context, namespace, name string) error {
	return a.api.Delete().Namespace(namespace).Resource("endpointslices").Name(name).Do(ctx).Error()
}
