package install

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/weftmesh/weft/tools/weft/internal/kube"
	"github.com/weftmesh/weft/tools/weft/internal/manifest"
)

// autoscalers and monitors exist only where they were asked for.
var (
	autoscalers = schema.GroupVersionResource{Group: "autoscaling", Version: "v2", Resource: "horizontalpodautoscalers"}
	podMonitors = schema.GroupVersionResource{Group: "monitoring.coreos.com", Version: "v1", Resource: "podmonitors"}
	issuers     = schema.GroupVersionResource{Group: "cert-manager.io", Version: "v1", Resource: "issuers"}
	certs       = schema.GroupVersionResource{Group: "cert-manager.io", Version: "v1", Resource: "certificates"}
)

// inventory is what a control plane may consist of, in the order in which it
// should go: webhooks first, so that nothing waits for an injector that is gone,
// and what holds other things last.
var inventory = []schema.GroupVersionResource{
	kube.MutatingWebhooks, kube.ValidatingWebhooks, kube.APIServices,
	autoscalers, podMonitors, issuers, certs,
	kube.Deployments, kube.StatefulSets, kube.DaemonSets, kube.CronJobs, kube.Jobs, kube.Services, kube.Budgets, kube.NetworkPolicies,
	kube.ConfigMaps, kube.Secrets,
	kube.RoleBindings, kube.Roles, kube.ClusterRoleBindings, kube.ClusterRoles, kube.ServiceAccounts,
	kube.CRDs, kube.Namespaces,
}

// belongings lists the objects of the mesh in a namespace, wherever they are.
// What an object of them owns is left out: it goes along.
func belongings(ctx context.Context, client *kube.Client) ([]unstructured.Unstructured, error) {
	var all []unstructured.Unstructured
	for _, gvr := range inventory {
		found, err := client.List(ctx, gvr, "", "linkerd.io/control-plane-ns="+client.Namespace())
		if apierrors.IsNotFound(err) {
			continue // the cluster does not have this kind
		}
		if err != nil {
			return nil, err
		}
		slices.SortFunc(found, func(a, b unstructured.Unstructured) int {
			return cmp.Or(strings.Compare(a.GetNamespace(), b.GetNamespace()), strings.Compare(a.GetName(), b.GetName()))
		})
		for _, obj := range found {
			if len(obj.GetOwnerReferences()) == 0 {
				all = append(all, obj)
			}
		}
	}
	return all, nil
}

// stub is as much of an object as kubectl needs to delete it.
func stub(obj *unstructured.Unstructured) manifest.Document {
	meta := Tree{"name": obj.GetName()}
	if ns := obj.GetNamespace(); ns != "" {
		meta["namespace"] = ns
	}
	return manifest.Document{
		Source: "the cluster", Line: 1,
		Object: Tree{"apiVersion": obj.GetAPIVersion(), "kind": obj.GetKind(), "metadata": meta},
	}
}

// key names an object whatever version of its kind is asked for.
func key(object Tree) string {
	group, _, ok := strings.Cut(text(object, "apiVersion"), "/")
	if !ok {
		group = ""
	}
	return fmt.Sprintf("%s/%s/%s/%s", group, object["kind"], text(object, "metadata.namespace"), text(object, "metadata.name"))
}
