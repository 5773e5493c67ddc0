package kube

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weftmesh/weft/services/mirror/internal/derive"
	"github.com/weftmesh/weft/services/mirror/internal/reconcile"
)

// Join makes the cluster a member of exactly these federated services. Mirrors
// of other clusters write the same objects: each changes its own entry only,
// over the version that it has read.
func (s *Sink) Join(ctx context.Context, want []derive.Member) (reconcile.Done, error) {
	r := &round{Sink: s}
	list, err := s.Client.Services(metav1.NamespaceAll).List(ctx, metav1.ListOptions{
		LabelSelector: derive.LabelManagedBy + "=" + derive.ManagedBy + ",!" + derive.LabelCluster,
	})
	if err != nil {
		return r.done, fmt.Errorf("listing federated services: %w", err)
	}
	have := map[string]*corev1.Service{}
	for i := range list.Items {
		if o := &list.Items[i]; derive.IsFederated(o) {
			have[o.Namespace+"/"+o.Name] = o
		}
	}
	if len(want) == 0 && len(have) == 0 {
		return r.done, nil
	}
	namespaces, err := s.namespaces(ctx)
	if err != nil {
		return r.done, err
	}
	for _, m := range want {
		if ctx.Err() != nil {
			return r.done, context.Cause(ctx)
		}
		if r.hasNamespace(ctx, namespaces, m.Service.Namespace, m.Key()) {
			r.member(ctx, have[m.Key()], m)
		}
		delete(have, m.Key())
	}
	for key, o := range have {
		r.leave(ctx, key, o)
	}
	return r.done, errors.Join(r.errs...)
}

// member joins a federated service, which another mirror may have made since it
// was looked for.
func (r *round) member(ctx context.Context, have *corev1.Service, m derive.Member) {
	err := r.join(ctx, have, m)
	if have == nil && apierrors.IsAlreadyExists(err) {
		list, again := r.Client.Services(m.Service.Namespace).List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + m.Service.Name})
		if again != nil {
			r.failed("looking at", m.Key(), again)
			return
		}
		i := slices.IndexFunc(list.Items, func(o corev1.Service) bool { return o.Name == m.Service.Name })
		if i < 0 || !derive.IsFederated(&list.Items[i]) {
			r.done.Problems = append(r.done.Problems, derive.Problem{
				Service: m.Key(), Reason: "a service of that name exists and is not a federated one of ours",
			})
			return
		}
		err = r.join(ctx, &list.Items[i], m)
	}
	if err != nil {
		r.failed("joining the federated service", m.Key(), err)
	}
}

func (r *round) join(ctx context.Context, have *corev1.Service, m derive.Member) error {
	next := derive.Join(have, m)
	api := r.Client.Services(next.Namespace)
	if have == nil {
		_, err := api.Create(ctx, next, metav1.CreateOptions{})
		if err == nil {
			r.done.Created++
		}
		return err
	}
	if equality.Semantic.DeepEqual(have, next) {
		return nil
	}
	_, err := api.Update(ctx, next, metav1.UpdateOptions{})
	if err == nil {
		r.done.Updated++
	}
	return err
}

func (r *round) leave(ctx context.Context, key string, have *corev1.Service) {
	next, left := derive.Leave(have, r.Cluster)
	api := r.Client.Services(have.Namespace)
	if !left {
		o := exactly(have.UID)
		if o.Preconditions != nil && have.ResourceVersion != "" {
			o.Preconditions.ResourceVersion = &have.ResourceVersion // nobody has joined meanwhile
		}
		r.deleted("deleting the federated service", key, api.Delete(ctx, have.Name, o))
		return
	}
	if equality.Semantic.DeepEqual(have, next) {
		return
	}
	if _, err := api.Update(ctx, next, metav1.UpdateOptions{}); err != nil {
		r.failed("leaving the federated service", key, err)
		return
	}
	r.done.Updated++
}
