package kube

import (
	"context"
	"fmt"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
)

// dialect is how objects are put into bytes. It knows the three groups that are
// used: client-go's typed clients know every group of Kubernetes, which with its
// elector made the binary twice as big (ARCHITECTURE.md has the numbers).
type dialect struct {
	codecs runtime.NegotiatedSerializer
	params runtime.ParameterCodec
}

func newDialect() (dialect, error) {
	s := runtime.NewScheme()
	add := runtime.NewSchemeBuilder(corev1.AddToScheme, discoveryv1.AddToScheme, coordinationv1.AddToScheme)
	if err := add.AddToScheme(s); err != nil {
		return dialect{}, fmt.Errorf("learning the kinds of objects: %w", err)
	}
	return dialect{
		codecs: rest.CodecFactoryForGeneratedClient(s, serializer.NewCodecFactory(s)).WithoutConversion(),
		params: runtime.NewParameterCodec(s),
	}, nil
}

// group makes the client of one group and version.
func (d dialect) group(cfg *rest.Config, gv schema.GroupVersion) (*rest.RESTClient, error) {
	cfg = rest.CopyConfig(cfg)
	cfg.GroupVersion = &gv
	cfg.NegotiatedSerializer = d.codecs
	cfg.APIPath = "/apis"
	if gv.Group == "" {
		cfg.APIPath = "/api"
	}
	client, err := rest.RESTClientFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("making a client for %s: %w", gv, err)
	}
	return client, nil
}

// objects lists and watches the objects of one kind in every namespace.
type objects[L runtime.Object] struct {
	api      rest.Interface
	params   runtime.ParameterCodec
	resource string
	empty    func() L
}

// List gets the objects that o selects.
func (r objects[L]) List(ctx context.Context, o metav1.ListOptions) (L, error) {
	list := r.empty()
	err := r.api.Get().Resource(r.resource).VersionedParams(&o, r.params).Do(ctx).Into(list)
	return list, err
}

// Watch follows the objects that o selects.
func (r objects[L]) Watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	o.Watch = true
	return r.api.Get().Resource(r.resource).VersionedParams(&o, r.params).Watch(ctx)
}

// leaseAPI is the Leases of one namespace.
type leaseAPI struct {
	api       rest.Interface
	params    runtime.ParameterCodec
	namespace string
}

// Get reads a lease.
func (l leaseAPI) Get(ctx context.Context, name string, o metav1.GetOptions) (*coordinationv1.Lease, error) {
	return l.send(ctx, l.api.Get().Name(name).VersionedParams(&o, l.params))
}

// Create makes a lease.
func (l leaseAPI) Create(ctx context.Context, lease *coordinationv1.Lease, o metav1.CreateOptions) (*coordinationv1.Lease, error) {
	return l.send(ctx, l.api.Post().VersionedParams(&o, l.params).Body(lease))
}

// Update writes a lease over the version of it that was read.
func (l leaseAPI) Update(ctx context.Context, lease *coordinationv1.Lease, o metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	return l.send(ctx, l.api.Put().Name(lease.Name).VersionedParams(&o, l.params).Body(lease))
}

func (l leaseAPI) send(ctx context.Context, r *rest.Request) (*coordinationv1.Lease, error) {
	out := new(coordinationv1.Lease)
	if err := r.Namespace(l.namespace).Resource("leases").Do(ctx).Into(out); err != nil {
		return nil, err
	}
	return out, nil
}

// eventAPI is the core group's events, which are the ones that Linkerd's injector
// writes. It has a client, and so a rate, of its own.
type eventAPI struct{ api rest.Interface }

// Create makes an event.
func (e eventAPI) Create(ctx context.Context, event *corev1.Event) error {
	return e.api.Post().Namespace(event.Namespace).Resource("events").Body(event).Do(ctx).Error()
}

// Patch changes an event.
func (e eventAPI) Patch(ctx context.Context, namespace, name string, patch []byte) error {
	return e.api.Patch(types.MergePatchType).Namespace(namespace).Resource("events").Name(name).Body(patch).Do(ctx).Error()
}

// discovery asks which resources there are.
type discovery struct{ api rest.Interface }

// Resources lists those of a group and version.
func (d discovery) Resources(ctx context.Context, groupVersion string) (*metav1.APIResourceList, error) {
	list := new(metav1.APIResourceList)
	if err := d.api.Get().AbsPath("/apis/" + groupVersion).Do(ctx).Into(list); err != nil {
		return nil, err
	}
	return list, nil
}
