package kube

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

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
