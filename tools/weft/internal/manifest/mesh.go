package manifest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/weftmesh/weft/services/injector/inject"
	"github.com/weftmesh/weft/services/kit/build"
	"github.com/weftmesh/weft/services/kit/say"
	"github.com/weftmesh/weft/tools/weft/internal/kube"
)

// meshOf asks the cluster for the mesh's settings.
func meshOf(ctx context.Context, flags *kube.Flags) (inject.Mesh, error) {
	client, err := flags.Connect()
	if err != nil {
		return inject.Mesh{}, alone(err)
	}
	ns := client.Namespace()
	cm, err := client.Get(ctx, kube.ConfigMaps, ns, "linkerd-config")
	if apierrors.IsNotFound(err) {
		return inject.Mesh{}, &say.Problem{
			What: "there is no mesh in namespace " + ns, Why: "its ConfigMap linkerd-config does not exist",
			Next: "name another namespace with --linkerd-namespace, or use the defaults with --ignore-cluster", Err: err,
		}
	}
	if err != nil {
		return inject.Mesh{}, alone(err)
	}
	text, _, _ := unstructured.NestedString(cm.Object, "data", "values")
	values, err := inject.ParseValues([]byte(text), build.Version())
	if err != nil {
		return inject.Mesh{}, fmt.Errorf("reading the mesh's settings in ConfigMap %s/linkerd-config: %w", ns, err)
	}
	mesh := inject.Mesh{Values: values, ControllerNamespace: ns}
	roots, err := client.Get(ctx, kube.ConfigMaps, ns, "linkerd-identity-trust-roots")
	if err != nil && !apierrors.IsNotFound(err) {
		return inject.Mesh{}, err
	}
	if err == nil {
		mesh.Anchors, _, _ = unstructured.NestedString(roots.Object, "data", "ca-bundle.crt")
	}
	return mesh, nil
}

// alone adds the way around to what is wrong with the cluster.
func alone(err error) error {
	if problem, ok := errors.AsType[*say.Problem](err); ok {
		with := *problem
		with.Next += "\nor use the mesh's defaults with --ignore-cluster"
		return &with
	}
	return err
}

// annotations are those of the flags that differ from the mesh's own settings.
func (o injectOptions) annotations(base *inject.Values) map[string]string {
	out := make(map[string]string)
	have := tree(base)
	for _, g := range o.flags.Given() {
		if same(have, g) {
			continue
		}
		out[g.Annotation] = g.Text
	}
	image := base.Proxy.Image.Name
	if with := Registry(image, o.registry); with != image && out[config+"proxy-image"] == "" {
		out[config+"proxy-image"] = with
	}
	return out
}

// same says whether all values that g stands for are so already.
func same(have Object, g Given) bool {
	if len(g.Values) == 0 || g.Name == "image-pull-policy" { // of which pods have more than one
		return false
	}
	for _, path := range g.Values {
		if value, _ := lookup(have, path); fmt.Sprint(value) != fmt.Sprint(g.Value) {
			return false
		}
	}
	return true
}

// lookup finds a value by its path.
func lookup(have Object, path string) (any, bool) {
	value, ok, err := unstructured.NestedFieldNoCopy(have, strings.Split(path, ".")...)
	return value, ok && err == nil
}

// tree is values as the chart has them.
func tree(v *inject.Values) Object {
	var out Object
	text, err := json.Marshal(v)
	if err != nil || json.Unmarshal(text, &out) != nil {
		return nil // every flag then counts as different
	}
	return out
}

// Registry is an image at another registry; an empty one changes nothing.
func Registry(image, registry string) string {
	if registry == "" {
		return image
	}
	return strings.TrimSuffix(registry, "/") + "/" + image[strings.LastIndex(image, "/")+1:]
}
