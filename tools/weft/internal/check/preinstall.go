package check

import (
	"context"
	"errors"
	"fmt"

	authv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/weftmesh/weft/services/kit/say"
	"github.com/weftmesh/weft/tools/weft/internal/check/engine"
	"github.com/weftmesh/weft/tools/weft/internal/check/judge"
	"github.com/weftmesh/weft/tools/weft/internal/kube"
)

func (w *World) preInstall() engine.Category {
	checks := []engine.Check{
		{Name: "control plane namespace does not already exist", Anchor: "pre-ns", Run: w.namespaceFree},
		{Name: "can create non-namespaced resources", Anchor: "pre-k8s-cluster-k8s", Run: w.canCreateClusterWide},
	}
	for _, r := range []struct {
		kind string
		gvr  schema.GroupVersionResource
	}{
		{"ServiceAccounts", kube.ServiceAccounts},
		{"Services", kube.Services},
		{"Deployments", kube.Deployments},
		{"CronJobs", kube.CronJobs},
		{"ConfigMaps", kube.ConfigMaps},
		{"Secrets", kube.Secrets},
	} {
		checks = append(checks, engine.Check{Name: "can create " + r.kind, Anchor: "pre-k8s", Run: func(ctx context.Context) error {
			return w.may(ctx, "create", r.gvr, w.Namespace, "")
		}})
	}
	return engine.Category{Name: "pre-kubernetes-setup", Checks: append(checks,
		engine.Check{Name: "can read Secrets", Anchor: "pre-k8s", Run: func(ctx context.Context) error {
			return w.may(ctx, "get", kube.Secrets, w.Namespace, "")
		}},
		engine.Check{Name: "can read extension-apiserver-authentication configmap", Anchor: "pre-k8s", Run: func(ctx context.Context) error {
			return w.may(ctx, "get", kube.ConfigMaps, "kube-system", "extension-apiserver-authentication")
		}},
		engine.Check{Name: "no clock skew detected", Anchor: "pre-k8s-clock-skew", Warning: true, Run: func(ctx context.Context) error {
			nodes, err := list[corev1.Node](ctx, w.door, kube.Nodes, "", "")
			if err != nil {
				return err
			}
			return judge.ClockSkew(nodes, w.Now())
		}},
	)}
}

func (w *World) namespaceFree(ctx context.Context) error {
	_, err := w.door.Get(ctx, kube.Namespaces, "", w.Namespace)
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return err
	}
	return &say.Problem{
		What: fmt.Sprintf("namespace %s exists", w.Namespace),
		Next: "if a control plane is there, upgrade it (`weft upgrade`) or remove it (`weft uninstall | kubectl delete -f -`); or install elsewhere with --linkerd-namespace",
	}
}

// clusterWide are the kinds without a namespace that an installation creates.
var clusterWide = []schema.GroupVersionResource{
	kube.Namespaces, kube.ClusterRoles, kube.ClusterRoleBindings, kube.CRDs, kube.MutatingWebhooks, kube.ValidatingWebhooks,
}

// canCreateClusterWide asks for a dry run of each object that has no namespace;
// where the manifests are not at hand, for the rights to create such objects.
func (w *World) canCreateClusterWide(ctx context.Context) error {
	if w.Manifests == nil {
		for _, gvr := range clusterWide {
			if err := w.may(ctx, "create", gvr, "", ""); err != nil {
				return err
			}
		}
		return nil
	}
	objects, err := w.Manifests()
	if err != nil {
		return err
	}
	for _, obj := range objects {
		if _, err := w.door.Create(ctx, obj, kube.DryRun()); err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("a dry run of creating %s %s: %w", obj.GetKind(), obj.GetName(), err)
		}
	}
	return nil
}

// may asks the API server whether we may do something.
func (w *World) may(ctx context.Context, verb string, gvr schema.GroupVersionResource, ns, name string) error {
	review := authv1.SelfSubjectAccessReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "authorization.k8s.io/v1", Kind: "SelfSubjectAccessReview"},
		Spec: authv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authv1.ResourceAttributes{
			Namespace: ns, Verb: verb, Group: gvr.Group, Version: gvr.Version, Resource: gvr.Resource, Name: name,
		}},
	}
	raw, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&review)
	if err != nil {
		return fmt.Errorf("asking for our rights: %w", err)
	}
	answer, err := w.door.Create(ctx, &unstructured.Unstructured{Object: raw})
	if err != nil {
		return err
	}
	if answer == nil {
		return errors.New("asking for our rights: no answer")
	}
	if err := decode(answer, &review); err != nil {
		return err
	}
	if review.Status.Allowed {
		return nil
	}
	what := gvr.Resource
	if gvr.Group != "" {
		what += "." + gvr.Group
	}
	if name != "" {
		what += "/" + name
	}
	where := "in the whole cluster"
	if ns != "" {
		where = "in namespace " + ns
	}
	return &say.Problem{
		What: fmt.Sprintf("not allowed to %s %s %s", verb, what, where), Why: review.Status.Reason,
		Next: "come as somebody who may (--context, --as), or ask for a role like cluster-admin for the installation",
	}
}
