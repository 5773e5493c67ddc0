// Package kube writes copies as objects of the local cluster.
//
// It looks at and touches only what carries its own labels (derive.ManagedBy
// and the other cluster's name): a service of the same name that somebody else
// made is reported, never changed.
package kube

import (
	"context"
	"errors"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/weftmesh/weft/services/mirror/internal/derive"
	"github.com/weftmesh/weft/services/mirror/internal/reconcile"
)

// Sink is the local cluster.
type Sink struct {
	Client  API
	Cluster string // the other one; empty for this one's part in federated services
	// CreateNamespaces makes a namespace that a copy needs; else the copy is a
	// problem.
	CreateNamespaces bool
}

// round is one Apply.
type round struct {
	*Sink
	services map[string]*corev1.Service
	slices   map[string]*discoveryv1.EndpointSlice
	done     reconcile.Done
	errs     []error
}

func (r *round) failed(act, key string, err error) {
	r.errs = append(r.errs, fmt.Errorf("%s %s: %w", act, key, err))
}

// Apply makes the cluster hold exactly these copies. What cannot be written
// does not keep the rest from it.
func (s *Sink) Apply(ctx context.Context, want []derive.Mirror) (reconcile.Done, error) {
	r := &round{Sink: s}
	if err := r.read(ctx); err != nil {
		return r.done, err
	}
	namespaces, err := s.namespaces(ctx)
	if err != nil {
		return r.done, err
	}
	for _, m := range want {
		if ctx.Err() != nil {
			return r.done, context.Cause(ctx)
		}
		if !r.hasNamespace(ctx, namespaces, m.Service.Namespace, m.Key()) {
			// Were it there, it would have gone with its namespace.
			delete(r.services, m.Key())
			continue
		}
		r.mirror(ctx, m)
	}
	r.sweep(ctx)
	return r.done, errors.Join(r.errs...)
}

// read lists what is ours. The API server's cache will do: a round works on
// whatever it finds, and writes are checked by resource version.
func (r *round) read(ctx context.Context) error {
	own := metav1.ListOptions{LabelSelector: labels.SelectorFromSet(labels.Set{
		derive.LabelManagedBy: derive.ManagedBy, derive.LabelCluster: r.Cluster,
	}).String()}
	services, err := r.Client.Services(metav1.NamespaceAll).List(ctx, own)
	if err != nil {
		return fmt.Errorf("listing copied services: %w", err)
	}
	slices, err := r.Client.Slices(metav1.NamespaceAll).List(ctx, own)
	if err != nil {
		return fmt.Errorf("listing copied slices: %w", err)
	}
	r.services = make(map[string]*corev1.Service, len(services.Items))
	for i := range services.Items {
		o := &services.Items[i]
		r.services[o.Namespace+"/"+o.Name] = o
	}
	r.slices = make(map[string]*discoveryv1.EndpointSlice, len(slices.Items))
	for i := range slices.Items {
		o := &slices.Items[i]
		r.slices[o.Namespace+"/"+o.Name] = o
	}
	return nil
}

func (s *Sink) namespaces(ctx context.Context) (map[string]bool, error) {
	list, err := s.Client.Namespaces(ctx, metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		return nil, fmt.Errorf("listing namespaces: %w", err)
	}
	out := make(map[string]bool, len(list.Items))
	for _, n := range list.Items {
		out[n.Name] = n.DeletionTimestamp == nil
	}
	return out, nil
}

// hasNamespace says whether a namespace exists, or could be made.
func (r *round) hasNamespace(ctx context.Context, known map[string]bool, name, key string) bool {
	alive, there := known[name]
	switch {
	case alive:
		return true
	case there || !r.CreateNamespaces:
		reason := "its namespace does not exist in this cluster"
		if there {
			reason = "its namespace is being deleted in this cluster"
		}
		r.done.Problems = append(r.done.Problems, derive.Problem{Service: key, Reason: reason})
		return false
	}
	marks := map[string]string{derive.LabelMirrored: "true"}
	if r.Cluster != "" {
		marks[derive.LabelCluster] = r.Cluster
	}
	err := r.Client.CreateNamespace(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: marks}})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		r.failed("making the namespace of", key, err)
		return false
	}
	known[name] = true
	return true
}

// mirror writes one copy: the service first, since its slices name it as their
// owner and so go with it, whoever deletes it.
func (r *round) mirror(ctx context.Context, m derive.Mirror) {
	svc, err := r.service(ctx, m.Service)
	delete(r.services, m.Key())
	if err != nil {
		for _, s := range m.Slices {
			delete(r.slices, s.Namespace+"/"+s.Name) // they are not unwanted
		}
		if apierrors.IsAlreadyExists(err) {
			r.done.Problems = append(r.done.Problems, derive.Problem{
				Service: m.Key(), Reason: "a service of that name exists and is not a copy of ours",
			})
			return
		}
		r.failed("writing the copy", m.Key(), err)
		return
	}
	for _, want := range m.Slices {
		key := want.Namespace + "/" + want.Name
		want = want.DeepCopy()
		if svc.UID != "" {
			want.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Service", Name: svc.Name, UID: svc.UID}}
		}
		if err := r.slice(ctx, want, r.slices[key]); err != nil {
			r.failed("writing the slice", key, err)
		}
		delete(r.slices, key)
	}
}

func (r *round) service(ctx context.Context, want *corev1.Service) (*corev1.Service, error) {
	api := r.Client.Services(want.Namespace)
	have := r.services[want.Namespace+"/"+want.Name]
	if have == nil {
		got, err := api.Create(ctx, want, metav1.CreateOptions{})
		if err == nil {
			r.done.Created++
		}
		return got, err
	}
	next := have.DeepCopy() // keeps the addresses that the API server gave
	next.Labels, next.Annotations = maps.Clone(want.Labels), maps.Clone(want.Annotations)
	next.Spec.Ports, next.Spec.Selector = want.Spec.Ports, nil
	if equality.Semantic.DeepEqual(have, next) {
		return have, nil
	}
	got, err := api.Update(ctx, next, metav1.UpdateOptions{})
	if err == nil {
		r.done.Updated++
	}
	return got, err
}

func (r *round) slice(ctx context.Context, want, have *discoveryv1.EndpointSlice) error {
	api := r.Client.Slices(want.Namespace)
	if have == nil {
		if _, err := api.Create(ctx, want, metav1.CreateOptions{}); err != nil {
			return err
		}
		r.done.Created++
		return nil
	}
	next := have.DeepCopy()
	next.Labels, next.Annotations, next.OwnerReferences = want.Labels, want.Annotations, want.OwnerReferences
	next.Endpoints, next.Ports = want.Endpoints, want.Ports
	if equality.Semantic.DeepEqual(have, next) {
		return nil
	}
	if _, err := api.Update(ctx, next, metav1.UpdateOptions{}); err != nil {
		return err
	}
	r.done.Updated++
	return nil
}

// sweep deletes what is ours and was not wanted: all that is left of the lists.
func (r *round) sweep(ctx context.Context) {
	for key, o := range r.services {
		err := r.Client.Services(o.Namespace).Delete(ctx, o.Name, exactly(o.UID))
		r.deleted("deleting the copy", key, err)
	}
	for key, o := range r.slices {
		err := r.Client.Slices(o.Namespace).Delete(ctx, o.Name, exactly(o.UID))
		r.deleted("deleting the slice", key, err)
	}
}

func (r *round) deleted(act, key string, err error) {
	switch {
	case err == nil:
		r.done.Deleted++
	case apierrors.IsNotFound(err), apierrors.IsConflict(err):
		// It is gone, or another one has its name.
	default:
		r.failed(act, key, err)
	}
}

// exactly is the object that was looked at, not one that took its name since.
func exactly[U ~string](uid U) metav1.DeleteOptions {
	if uid == "" {
		return metav1.DeleteOptions{}
	}
	return *metav1.NewPreconditionDeleteOptions(string(uid))
}
