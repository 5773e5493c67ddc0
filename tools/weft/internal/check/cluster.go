package check

import (
	"context"
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/weftmesh/weft/services/kit/say"
	"github.com/weftmesh/weft/tools/weft/internal/check/engine"
	"github.com/weftmesh/weft/tools/weft/internal/check/judge"
	"github.com/weftmesh/weft/tools/weft/internal/kube"
)

func (w *World) api() engine.Category {
	return engine.Category{Name: "kubernetes-api", Checks: []engine.Check{
		{Name: "can initialize the client", Anchor: "k8s-api", Fatal: true, Run: func(context.Context) error {
			door, err := w.Connect()
			w.door = door
			return err
		}},
		{Name: "can query the Kubernetes API", Anchor: "k8s-api", Fatal: true, Run: func(ctx context.Context) error {
			_, err := w.serverVersion(ctx)
			w.reachable = err == nil
			return err
		}},
	}}
}

func (w *World) version() engine.Category {
	return engine.Category{Name: "kubernetes-version", Checks: []engine.Check{
		{Name: "is running the minimum Kubernetes API version", Anchor: "k8s-version", Run: func(ctx context.Context) error {
			git, err := w.serverVersion(ctx)
			if err != nil {
				return err
			}
			return judge.KubernetesVersion(git)
		}},
	}}
}

func (w *World) serverVersion(ctx context.Context) (string, error) {
	body, err := w.door.Raw(ctx, "/version")
	if err != nil {
		return "", err
	}
	var v struct {
		GitVersion string `json:"gitVersion"`
	}
	if err := json.Unmarshal(body, &v); err != nil || v.GitVersion == "" {
		return "", &say.Problem{
			What: "the answer to /version is none of Kubernetes", Next: "see whether the kubeconfig names an API server: kubectl version", Err: err,
		}
	}
	return v.GitVersion, nil
}

// minGatewayAPI is the oldest bundle that the mesh is made for (spec/features.md §3).
const minGatewayAPI = "1.1.1"

const bundleVersion = "gateway.networking.k8s.io/bundle-version"

// gatewayCRDs are those that must be there; TLS and TCP routes are optional.
var gatewayCRDs = []string{"httproutes.gateway.networking.k8s.io", "grpcroutes.gateway.networking.k8s.io"}

const gatewayNext = "install the Gateway API " + minGatewayAPI + " or later, its own release (https://gateway-api.sigs.k8s.io/guides/#installing-gateway-api)\n" +
	"or what we bring: weft install --crds --set installGatewayAPI=true | kubectl apply --server-side -f -"

func (w *World) gatewayAPI() engine.Category {
	return engine.Category{Name: "gateway-api-crd", Checks: []engine.Check{
		{Name: "Gateway API CRDs are installed", Anchor: "gateway-api-crd", Fatal: true, Run: func(ctx context.Context) error {
			var all []thing
			for _, crd := range gatewayCRDs {
				all = append(all, thing{kube.CRDs, "CustomResourceDefinition", "", crd})
			}
			if err := w.exist(ctx, gatewayNext, all...); err != nil {
				return err
			}
			for _, crd := range gatewayCRDs {
				if err := w.gatewayCRD(ctx, crd); err != nil {
					return err
				}
			}
			return nil
		}},
	}}
}

func (w *World) gatewayCRD(ctx context.Context, name string) error {
	object := "CustomResourceDefinition " + name
	crd, err := w.door.Get(ctx, kube.CRDs, "", name)
	if err != nil {
		return err
	}
	if !served(crd, "v1") {
		return &say.Problem{What: object + ": spec.versions does not serve v1", Next: gatewayNext}
	}
	bundle := crd.GetAnnotations()[bundleVersion]
	have, err := version.ParseGeneric(bundle)
	if err != nil {
		return &say.Problem{What: fmt.Sprintf("%s: annotation %s is %q, which is no version", object, bundleVersion, bundle), Next: gatewayNext, Err: err}
	}
	if have.LessThan(version.MustParseGeneric(minGatewayAPI)) {
		return &say.Problem{What: fmt.Sprintf("%s: annotation %s is %s, at least %s is required", object, bundleVersion, bundle, minGatewayAPI), Next: gatewayNext}
	}
	return nil
}

// served says whether a CRD serves a version.
func served(crd *unstructured.Unstructured, name string) bool {
	versions, _, err := unstructured.NestedSlice(crd.Object, "spec", "versions")
	if err != nil {
		return false
	}
	for _, v := range versions {
		if m, ok := v.(map[string]any); ok && m["name"] == name && m["served"] == true {
			return true
		}
	}
	return false
}

// crdNames are the mesh's own kinds (spec/features.md §4; Links come with
// multicluster).
var crdNames = []string{
	"serviceprofiles.linkerd.io",
	"authorizationpolicies.policy.linkerd.io",
	"egressnetworks.policy.linkerd.io",
	"httplocalratelimitpolicies.policy.linkerd.io",
	"httproutes.policy.linkerd.io",
	"meshtlsauthentications.policy.linkerd.io",
	"networkauthentications.policy.linkerd.io",
	"serverauthorizations.policy.linkerd.io",
	"servers.policy.linkerd.io",
	"externalworkloads.workload.linkerd.io",
}

func (w *World) crdsExist(ctx context.Context) error {
	var all []thing
	for _, name := range crdNames {
		all = append(all, thing{kube.CRDs, "CustomResourceDefinition", "", name})
	}
	return w.exist(ctx, "weft install --crds | kubectl apply -f -, or helm upgrade --install weft-crds", all...)
}

func (w *World) crds() engine.Category {
	return engine.Category{Name: "linkerd-crd", Checks: []engine.Check{
		{Name: "control plane CustomResourceDefinitions exist", Anchor: "l5d-existence-crd", Fatal: true, Retry: true, Run: w.crdsExist},
	}}
}
