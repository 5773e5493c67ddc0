package install

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/weftmesh/weft/services/kit/say"
	"github.com/weftmesh/weft/tools/weft/internal/kube"
)

// Names of objects that are looked for.
const (
	configName     = "linkerd-config"
	overridesName  = "linkerd-config-overrides"
	trustRootsName = "linkerd-identity-trust-roots"
	bundleKey      = "ca-bundle.crt"
)

// lookup lets templates see what is in the cluster.
func lookup(ctx context.Context, client *kube.Client) func(apiVersion, kind, ns, name string) (map[string]any, error) {
	return func(apiVersion, kind, ns, name string) (map[string]any, error) {
		r, err := client.Find(ctx, schema.FromAPIVersionAndKind(apiVersion, kind))
		if err != nil {
			return nil, err
		}
		obj, err := client.Get(ctx, r.GroupVersionResource, ns, name)
		if apierrors.IsNotFound(err) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		return obj.Object, nil
	}
}

// exists says whether an object is there.
func exists(ctx context.Context, client *kube.Client, gvr schema.GroupVersionResource, ns, name string) (bool, error) {
	_, err := client.Get(ctx, gvr, ns, name)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	return err == nil, err
}

// kubeVersion is the API server's version, as v1.37.2.
func kubeVersion(ctx context.Context, client *kube.Client) (string, error) {
	body, err := client.Raw(ctx, "/version")
	if err != nil {
		return "", err
	}
	var v struct {
		GitVersion string `json:"gitVersion"`
	}
	if err := json.Unmarshal(body, &v); err != nil {
		return "", fmt.Errorf("reading the version of the API server: %w", err)
	}
	return v.GitVersion, nil
}

// apiPorts are the ports at which pods reach the API server, of its Service and
// behind it; empty if they cannot be known.
func apiPorts(ctx context.Context, client *kube.Client) string {
	svc, err := client.Get(ctx, kube.Services, "default", "kubernetes")
	if err != nil {
		return ""
	}
	var found []int64
	ports, _, _ := unstructured.NestedSlice(svc.Object, "spec", "ports")
	for _, p := range ports {
		port, ok := p.(map[string]any)
		if !ok {
			continue
		}
		for _, key := range []string{"port", "targetPort"} {
			if n, ok := port[key].(int64); ok && !slices.Contains(found, n) {
				found = append(found, n)
			}
		}
	}
	slices.Sort(found)
	var out []string
	for _, n := range found {
		out = append(out, strconv.FormatInt(n, 10))
	}
	return strings.Join(out, ",")
}

// gatewayKinds are those of the Gateway API that a mesh must have, as Linkerd;
// TLS and TCP routes are optional.
var gatewayKinds = []string{"grpcroutes.gateway.networking.k8s.io", "httproutes.gateway.networking.k8s.io"}

// missingCRDs are the names of those CRDs that the cluster lacks.
func missingCRDs(ctx context.Context, client *kube.Client, want []string) ([]string, error) {
	var missing []string
	for _, name := range want {
		there, err := exists(ctx, client, kube.CRDs, "", name)
		if err != nil {
			return nil, err
		}
		if !there {
			missing = append(missing, name)
		}
	}
	slices.Sort(missing)
	return missing, nil
}

// dockerNodes are the nodes whose containers Docker runs: it lets an init
// container redirect traffic as root only.
func dockerNodes(ctx context.Context, client *kube.Client) ([]string, error) {
	nodes, err := client.List(ctx, kube.Nodes, "", "")
	if err != nil {
		return nil, err
	}
	var found []string
	for _, node := range nodes {
		runtime, _, _ := unstructured.NestedString(node.Object, "status", "nodeInfo", "containerRuntimeVersion")
		if strings.HasPrefix(runtime, "docker:") {
			found = append(found, node.GetName())
		}
	}
	return found, nil
}

// ready makes sure that a control plane can be installed.
func ready(ctx context.Context, client *kube.Client, values Tree, crds []string) error {
	ns := client.Namespace()
	there, err := exists(ctx, client, kube.ConfigMaps, ns, configName)
	switch {
	case err != nil:
		return err
	case there:
		return &say.Problem{
			What: "a control plane is installed in namespace " + ns + " already", Why: "its ConfigMap " + configName + " exists",
			Next: "change it with `weft upgrade`; to print the manifests all the same, use --ignore-cluster",
		}
	}
	missing, err := missingCRDs(ctx, client, crds)
	switch {
	case err != nil:
		return err
	case len(missing) > 0:
		return &say.Problem{
			What: "the cluster lacks kinds that the control plane works with", Why: "no such CustomResourceDefinition: " + some(missing),
			Next: "weft install --crds | kubectl apply -f -",
		}
	}
	missing, err = missingCRDs(ctx, client, gatewayKinds)
	switch {
	case err != nil:
		return err
	case len(missing) > 0:
		return &say.Problem{
			What: "the cluster lacks the Gateway API, whose routes the control plane works with", Why: "no such CustomResourceDefinition: " + some(missing),
			Next: "install its own release (https://gateway-api.sigs.k8s.io/guides/#installing-gateway-api)\n" +
				"or what we bring: weft install --crds --set installGatewayAPI=true | kubectl apply --server-side -f -",
		}
	}
	if has(values, "proxyInit.runAsRoot") || has(values, "cniEnabled") {
		return nil
	}
	nodes, err := dockerNodes(ctx, client)
	switch {
	case err != nil:
		return err
	case len(nodes) > 0:
		return &say.Problem{
			What: "pods on some nodes could not be meshed", Why: "Docker runs the containers there, and lets only root redirect traffic: " + some(nodes),
			Next: "add --set proxyInit.runAsRoot=true",
		}
	}
	return nil
}

// most is how many names a message lists.
const most = 10

// some are names for a message.
func some(names []string) string {
	if more := len(names) - most; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), more)
	}
	return strings.Join(names, ", ")
}

// count is a number of things, in words.
func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
