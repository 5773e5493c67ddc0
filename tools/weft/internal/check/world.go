// Package check is `weft check`: it asks a cluster whether a mesh can be put on
// it, and whether the one that is there works. This room fetches what the
// questions need and has the list of questions; judge knows the good answers,
// engine asks, report writes. It changes nothing in the cluster: what it creates
// are reviews of its own rights and dry runs.
package check

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/weftmesh/weft/services/kit/say"
	"github.com/weftmesh/weft/tools/weft/internal/check/engine"
	"github.com/weftmesh/weft/tools/weft/internal/kube"
)

// Door is what the checks ask of Kubernetes.
type Door interface {
	Get(ctx context.Context, gvr schema.GroupVersionResource, ns, name string) (*unstructured.Unstructured, error)
	List(ctx context.Context, gvr schema.GroupVersionResource, ns, selector string) ([]unstructured.Unstructured, error)
	Create(ctx context.Context, obj *unstructured.Unstructured, options ...kube.Option) (*unstructured.Unstructured, error)
	Raw(ctx context.Context, path string) ([]byte, error)
	Dial(ctx context.Context, ns, pod string, port int) (net.Conn, error)
}

// World is a cluster as the checks see it, and what they were asked about it.
// One goroutine uses it.
type World struct {
	Connect func() (Door, error) // asked once, by the first check

	Namespace    string // of the control plane
	CNINamespace string
	Target       string // namespace of the data plane; empty means all
	CNI          bool   // the CNI plugin is to be used, whatever linkerd-config says
	CLI          string // this program's version
	Expected     string // what is held for the latest version; empty: Newest is asked
	// Newest tells the newest release; nil: nobody is asked.
	Newest func(context.Context) (string, error)
	Now    func() time.Time
	// Manifests are what an installation would create without a namespace; nil
	// where that is not known.
	Manifests func() ([]*unstructured.Unstructured, error)

	door      Door
	reachable bool    // the API server has answered
	config    *config // what linkerd-config says, once it was read

	asked     bool // whether Newest was
	newest    string
	newestErr error
}

// config is the part of linkerd-config's values that the checks look at.
type config struct {
	Version         string `json:"linkerdVersion"`
	HA              bool   `json:"highAvailability"`
	CNI             bool   `json:"cniEnabled"`
	ClusterNetworks string `json:"clusterNetworks"`
	NoHeartbeat     bool   `json:"disableHeartBeat"`
	ProxyInit       struct {
		RunAsRoot bool `json:"runAsRoot"`
	} `json:"proxyInit"`
	NATS struct {
		TLSSecret string `json:"tlsSecret"`
	} `json:"nats"`
	Identity struct {
		ExternalCA bool `json:"externalCA"`
		Issuer     struct {
			Scheme string `json:"scheme"`
		} `json:"issuer"`
	} `json:"identity"`
}

const configMap = "linkerd-config"

// readConfig reads linkerd-config.
func (w *World) readConfig(ctx context.Context) error {
	object := fmt.Sprintf("ConfigMap %s/%s", w.Namespace, configMap)
	obj, err := w.door.Get(ctx, kube.ConfigMaps, w.Namespace, configMap)
	if apierrors.IsNotFound(err) {
		return &say.Problem{
			What: object + " does not exist",
			Next: "install the control plane (`weft install --crds | kubectl apply -f -`, then `weft install | kubectl apply -f -`, or helm), or name its namespace with --linkerd-namespace",
			Err:  err,
		}
	}
	if err != nil {
		return err
	}
	text, found, err := unstructured.NestedString(obj.Object, "data", "values")
	if err != nil || !found {
		return &say.Problem{What: object + ": data.values is missing", Next: "install the control plane again: the object was changed by hand", Err: err}
	}
	var c config
	if err := yaml.Unmarshal([]byte(text), &c); err != nil {
		return &say.Problem{What: object + ": data.values cannot be read: " + err.Error(), Next: "install the control plane again: the object was changed by hand", Err: err}
	}
	w.config = &c
	return nil
}

// get reads one object as a T.
func get[T any](ctx context.Context, d Door, gvr schema.GroupVersionResource, ns, name string) (*T, error) {
	obj, err := d.Get(ctx, gvr, ns, name)
	if err != nil {
		return nil, err
	}
	out := new(T)
	return out, decode(obj, out)
}

// list reads objects as Ts.
func list[T any](ctx context.Context, d Door, gvr schema.GroupVersionResource, ns, selector string) ([]T, error) {
	objects, err := d.List(ctx, gvr, ns, selector)
	if err != nil {
		return nil, err
	}
	all := make([]T, len(objects))
	for i := range objects {
		if err := decode(&objects[i], &all[i]); err != nil {
			return nil, err
		}
	}
	return all, nil
}

func decode(obj *unstructured.Unstructured, into any) error {
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(obj.Object, into); err != nil {
		return fmt.Errorf("reading %s %s/%s: %w", obj.GetKind(), obj.GetNamespace(), obj.GetName(), err)
	}
	return nil
}

// thing is an object that must be there.
type thing struct {
	gvr      schema.GroupVersionResource
	kind     string
	ns, name string
}

func (t thing) String() string {
	if t.ns == "" {
		return t.kind + " " + t.name
	}
	return t.kind + " " + t.ns + "/" + t.name
}

// exist says which of things are missing.
func (w *World) exist(ctx context.Context, next string, things ...thing) error {
	var missing string
	var cause error
	for _, t := range things {
		_, err := w.door.Get(ctx, t.gvr, t.ns, t.name)
		switch {
		case apierrors.IsNotFound(err):
			if missing != "" {
				missing += "\n"
			}
			missing += t.String() + " does not exist"
			cause = errors.Join(cause, err)
		case err != nil:
			return err
		}
	}
	if missing == "" {
		return nil
	}
	return &say.Problem{What: missing, Next: next, Err: cause}
}

// unless skips a check.
func unless(applies bool, why string) error {
	if applies {
		return nil
	}
	return engine.Skip(why)
}
