package kube

import (
	"context"
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/weftmesh/weft/services/kit/say"
)

// The resources that commands name without looking at an object first.
var (
	Namespaces      = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
	Nodes           = schema.GroupVersionResource{Version: "v1", Resource: "nodes"}
	Pods            = schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	Services        = schema.GroupVersionResource{Version: "v1", Resource: "services"}
	ConfigMaps      = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	Secrets         = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
	ServiceAccounts = schema.GroupVersionResource{Version: "v1", Resource: "serviceaccounts"}
	Events          = schema.GroupVersionResource{Version: "v1", Resource: "events"}
	Controllers     = schema.GroupVersionResource{Version: "v1", Resource: "replicationcontrollers"}

	Deployments  = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
	DaemonSets   = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "daemonsets"}
	StatefulSets = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "statefulsets"}
	ReplicaSets  = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "replicasets"}
	Jobs         = schema.GroupVersionResource{Group: "batch", Version: "v1", Resource: "jobs"}
	CronJobs     = schema.GroupVersionResource{Group: "batch", Version: "v1", Resource: "cronjobs"}

	Roles               = schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "roles"}
	RoleBindings        = schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "rolebindings"}
	ClusterRoles        = schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterroles"}
	ClusterRoleBindings = schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterrolebindings"}

	MutatingWebhooks   = schema.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: "v1", Resource: "mutatingwebhookconfigurations"}
	ValidatingWebhooks = schema.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: "v1", Resource: "validatingwebhookconfigurations"}
	CRDs               = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	APIServices        = schema.GroupVersionResource{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"}
	Leases             = schema.GroupVersionResource{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"}
	EndpointSlices     = schema.GroupVersionResource{Group: "discovery.k8s.io", Version: "v1", Resource: "endpointslices"}
	Budgets            = schema.GroupVersionResource{Group: "policy", Version: "v1", Resource: "poddisruptionbudgets"}
	NetworkPolicies    = schema.GroupVersionResource{Group: "networking.k8s.io", Version: "v1", Resource: "networkpolicies"}
	AccessReviews      = schema.GroupVersionResource{Group: "authorization.k8s.io", Version: "v1", Resource: "selfsubjectaccessreviews"}
)

// Resource is where objects of a kind are kept.
type Resource struct {
	schema.GroupVersionResource
	Kind       string
	Namespaced bool
}

// Resources asks the API server which resources it has in gv. Sub-resources are
// left out. The answer is asked for once for each gv.
func (c *Client) Resources(ctx context.Context, gv schema.GroupVersion) ([]Resource, error) {
	c.mu.Lock()
	known, ok := c.kinds[gv]
	c.mu.Unlock()
	if ok {
		return known, nil
	}
	path := "/apis/" + gv.String()
	if gv.Group == "" {
		path = "/api/" + gv.Version
	}
	body, err := c.Raw(ctx, path)
	if err != nil {
		return nil, err
	}
	var list metav1.APIResourceList
	if err := json.Unmarshal(body, &list); err != nil {
		return nil, fmt.Errorf("reading the resources of %s: %w", gv, err)
	}
	var found []Resource
	for _, r := range list.APIResources {
		if r.Kind != "" && !isSub(r.Name) {
			found = append(found, Resource{gv.WithResource(r.Name), r.Kind, r.Namespaced})
		}
	}
	c.mu.Lock()
	c.kinds[gv] = found
	c.mu.Unlock()
	return found, nil
}

// Find tells where objects of gvk are kept.
func (c *Client) Find(ctx context.Context, gvk schema.GroupVersionKind) (Resource, error) {
	all, err := c.Resources(ctx, gvk.GroupVersion())
	if err == nil {
		for _, r := range all {
			if r.Kind == gvk.Kind {
				return r, nil
			}
		}
	}
	if err == nil || isNotFound(err) {
		return Resource{}, &say.Problem{
			What: fmt.Sprintf("the cluster does not know the kind %s of %s", gvk.Kind, gvk.GroupVersion()),
			Why:  "no such resource is served by its API server", Next: "install what brings it (for the mesh's own kinds: `weft install --crds`)", Err: err,
		}
	}
	return Resource{}, err
}
