package check

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"github.com/weftmesh/weft/tools/weft/internal/check/engine"
	"github.com/weftmesh/weft/tools/weft/internal/check/judge"
	"github.com/weftmesh/weft/tools/weft/internal/kube"
)

// meshedPods are the pods of the data plane: those that this control plane meshes.
func (w *World) meshedPods(ctx context.Context) ([]corev1.Pod, error) {
	return list[corev1.Pod](ctx, w.door, kube.Pods, w.Target, "linkerd.io/control-plane-ns="+w.Namespace)
}

func (w *World) targetServices(ctx context.Context) ([]corev1.Service, error) {
	return list[corev1.Service](ctx, w.door, kube.Services, w.Target, "")
}

func (w *World) dataPlane() engine.Category {
	where := "all namespaces"
	if w.Target != "" {
		where = "namespace " + w.Target
	}
	pods := func(judged func([]corev1.Pod) error) func(context.Context) error {
		return func(ctx context.Context) error {
			all, err := w.meshedPods(ctx)
			if err != nil {
				return err
			}
			return judged(all)
		}
	}
	services := func(judged func([]corev1.Service) error) func(context.Context) error {
		return func(ctx context.Context) error {
			all, err := w.targetServices(ctx)
			if err != nil {
				return err
			}
			return judged(all)
		}
	}
	return engine.Category{Name: "linkerd-data-plane", Checks: []engine.Check{
		{Name: "data plane namespace exists", Anchor: "l5d-data-plane-exists", Fatal: true, Run: func(ctx context.Context) error {
			if w.Target == "" {
				return nil
			}
			return w.exist(ctx, "name an existing namespace with --namespace", thing{kube.Namespaces, "namespace", "", w.Target})
		}},
		{Name: "data plane proxies are ready", Anchor: "l5d-data-plane-ready", Fatal: true, Retry: true, Run: pods(func(all []corev1.Pod) error {
			return judge.ProxiesReady(all, where)
		})},
		{Name: "data plane is up-to-date", Anchor: "l5d-data-plane-version", Warning: true, Run: func(ctx context.Context) error {
			return w.upToDate(ctx, func(latest string) error {
				return pods(func(all []corev1.Pod) error { return judge.ProxyVersions(all, latest, "the latest version") })(ctx)
			})
		}},
		{Name: "data plane and cli versions match", Anchor: "l5d-data-plane-cli-version", Warning: true, Run: pods(func(all []corev1.Pod) error {
			return judge.ProxyVersions(all, w.CLI, "this program")
		})},
		{Name: "data plane pod labels are configured correctly", Anchor: "l5d-data-plane-pod-labels", Warning: true, Run: pods(judge.PodLabels)},
		{Name: "data plane service labels are configured correctly", Anchor: "l5d-data-plane-services-labels", Warning: true, Run: services(judge.ServiceLabels)},
		{Name: "data plane service annotations are configured correctly", Anchor: "l5d-data-plane-services-annotations", Warning: true, Run: services(judge.ServiceAnnotations)},
		{Name: "opaque ports are properly annotated", Anchor: "linkerd-opaque-ports-definition", Warning: true, Run: func(ctx context.Context) error {
			all, err := w.meshedPods(ctx)
			if err != nil {
				return err
			}
			return services(func(s []corev1.Service) error { return judge.Opaque(s, all) })(ctx)
		}},
	}}
}

func (w *World) extensionNamespaces() engine.Category {
	return engine.Category{Name: "linkerd-extension-checks", Checks: []engine.Check{
		{Name: "namespace configuration for extensions", Anchor: "l5d-extension-namespaces", Warning: true, Run: func(ctx context.Context) error {
			all, err := list[corev1.Namespace](ctx, w.door, kube.Namespaces, "", "linkerd.io/extension")
			if err != nil {
				return err
			}
			return judge.Extensions(all)
		}},
	}}
}
