package check

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/weftmesh/weft/services/kit/say"
	"github.com/weftmesh/weft/tools/weft/internal/check/engine"
	"github.com/weftmesh/weft/tools/weft/internal/kube"
)

// usesCNI says whether the CNI plugin redirects traffic.
func (w *World) usesCNI() bool { return w.CNI || w.config != nil && w.config.CNI }

func (w *World) cniPlugin() engine.Category {
	ns := w.CNINamespace
	const next = "weft install-cni | kubectl apply -f -, or helm install weft-cni; name its namespace with --cni-namespace"
	exist := func(name, anchor string, t thing) engine.Check {
		return engine.Check{Name: "cni plugin " + name + " exists", Anchor: anchor, Fatal: true, Run: func(ctx context.Context) error {
			if err := unless(w.usesCNI(), "no CNI plugin"); err != nil {
				return err
			}
			return w.exist(ctx, next, t)
		}}
	}
	return engine.Category{Name: "linkerd-cni-plugin", Checks: []engine.Check{
		exist("ConfigMap", "cni-plugin-cm-exists", thing{kube.ConfigMaps, "ConfigMap", ns, cniConfig}),
		exist("ClusterRole", "cni-plugin-cr-exists", thing{kube.ClusterRoles, "ClusterRole", "", cniName}),
		exist("ClusterRoleBinding", "cni-plugin-crb-exists", thing{kube.ClusterRoleBindings, "ClusterRoleBinding", "", cniName}),
		exist("ServiceAccount", "cni-plugin-sa-exists", thing{kube.ServiceAccounts, "ServiceAccount", ns, cniName}),
		exist("DaemonSet", "cni-plugin-ds-exists", thing{kube.DaemonSets, "DaemonSet", ns, cniName}),
		{Name: "cni plugin pod is running on all nodes", Anchor: "cni-plugin-ready", Fatal: true, Retry: true, Run: w.cniReady},
	}}
}

// Names of the CNI plugin's objects.
const (
	cniName   = "linkerd-cni"
	cniConfig = "linkerd-cni-config"
)

func (w *World) cniReady(ctx context.Context) error {
	if err := unless(w.usesCNI(), "no CNI plugin"); err != nil {
		return err
	}
	set, err := get[appsv1.DaemonSet](ctx, w.door, kube.DaemonSets, w.CNINamespace, cniName)
	if err != nil {
		return err
	}
	if want, ready := set.Status.DesiredNumberScheduled, set.Status.NumberReady; want == 0 || ready != want {
		return &say.Problem{
			What: fmt.Sprintf("DaemonSet %s/%s: status.numberReady is %d, status.desiredNumberScheduled is %d", set.Namespace, set.Name, ready, want),
			Next: fmt.Sprintf("kubectl -n %s get pods -o wide; kubectl -n %s describe daemonset %s", set.Namespace, set.Namespace, set.Name),
		}
	}
	return nil
}
