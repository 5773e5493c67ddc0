package kube

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
)

// Objects are the calls on one kind of object in a namespace, or in all.
type Objects[T, L any] interface {
	List(ctx context.Context, o metav1.ListOptions) (L, error)
	Create(ctx context.Context, obj T, o metav1.CreateOptions) (T, error)
	Update(ctx context.Context, obj T, o metav1.UpdateOptions) (T, error)
	Delete(ctx context.Context, name string, o metav1.DeleteOptions) error
}

// What copies are made of.
type (
	// Services are those of one namespace.
	Services = Objects[*corev1.Service, *corev1.ServiceList]
	// Slices are the EndpointSlices of one namespace.
	Slices = Objects[*discoveryv1.EndpointSlice, *discoveryv1.EndpointSliceList]
)

// API is the part of the Kubernetes API that a Sink needs.
type API interface {
	Services(namespace string) Services
	Slices(namespace string) Slices
	Namespaces(ctx context.Context, o metav1.ListOptions) (*corev1.NamespaceList, error)
	CreateNamespace(ctx context.Context, ns *corev1.Namespace) error
}

// api talks to an API server. client-go's typed clients would bring every group
// of Kubernetes along, and with them most of the binary.
type api struct {
	core, discovery rest.Interface
	params          runtime.ParameterCodec
}

// readTokenAgain makes a refused token be read from its file again at once;
// client-go would go on with it for up to a minute. (The watcher has the same
// few lines.)
func readTokenAgain(cfg *rest.Config) {
	if cfg.BearerTokenFile == "" {
		return
	}
	cfg.Wrap(transport.ResettableTokenSourceWrapTransport(transport.NewCachedFileTokenSource(cfg.BearerTokenFile)))
	cfg.BearerToken, cfg.BearerTokenFile = "", ""
}

// Connect makes the clients; nothing is sent yet.
func Connect(cfg *rest.Config) (API, error) {
	s := runtime.NewScheme()
	add := runtime.NewSchemeBuilder(corev1.AddToScheme, discoveryv1.AddToScheme)
	if err := add.AddToScheme(s); err != nil {
		return nil, fmt.Errorf("learning the kinds of objects: %w", err)
	}
	cfg = rest.CopyConfig(cfg)
	readTokenAgain(cfg)
	codecs := rest.CodecFactoryForGeneratedClient(s, serializer.NewCodecFactory(s)).WithoutConversion()
	group := func(path string, gv schema.GroupVersion) (*rest.RESTClient, error) {
		one := rest.CopyConfig(cfg)
		one.APIPath, one.GroupVersion, one.NegotiatedSerializer = path, &gv, codecs
		client, err := rest.RESTClientFor(one)
		if err != nil {
			return nil, fmt.Errorf("making a client for %s: %w", gv, err)
		}
		return client, nil
	}
	a := &api{params: runtime.NewParameterCodec(s)}
	var err error
	if a.core, err = group("/api", corev1.SchemeGroupVersion); err != nil {
		return nil, err
	}
	if a.discovery, err = group("/apis", discoveryv1.SchemeGroupVersion); err != nil {
		return nil, err
	}
	return a, nil
}

func (a *api) Services(namespace string) Services {
	return objects[*corev1.Service, *corev1.ServiceList]{
		a.core, a.params, "services", namespace,
		func() *corev1.Service { return new(corev1.Service) },
		func() *corev1.ServiceList { return new(corev1.ServiceList) },
	}
}

func (a *api) Slices(namespace string) Slices {
	return objects[*discoveryv1.EndpointSlice, *discoveryv1.EndpointSliceList]{
		a.discovery, a.params, "endpointslices", namespace,
		func() *discoveryv1.EndpointSlice { return new(discoveryv1.EndpointSlice) },
		func() *discoveryv1.EndpointSliceList { return new(discoveryv1.EndpointSliceList) },
	}
}

func (a *api) Namespaces(ctx context.Context, o metav1.ListOptions) (*corev1.NamespaceList, error) {
	list := new(corev1.NamespaceList)
	err := a.core.Get().Resource("namespaces").VersionedParams(&o, a.params).Do(ctx).Into(list)
	return list, err
}

func (a *api) CreateNamespace(ctx context.Context, ns *corev1.Namespace) error {
	return a.core.Post().Resource("namespaces").Body(ns).Do(ctx).Error()
}

type named interface {
	runtime.Object
	GetName() string
}

// objects speaks of one resource. An empty namespace means all of them.
type objects[T named, L runtime.Object] struct {
	client              rest.Interface
	params              runtime.ParameterCodec
	resource, namespace string
	one                 func() T
	many                func() L
}

func (r objects[T, L]) on(req *rest.Request) *rest.Request {
	return req.NamespaceIfScoped(r.namespace, r.namespace != "").Resource(r.resource)
}

// List gets the objects that o selects.
func (r objects[T, L]) List(ctx context.Context, o metav1.ListOptions) (L, error) {
	got := r.many()
	err := r.on(r.client.Get()).VersionedParams(&o, r.params).Do(ctx).Into(got)
	return got, err
}

// Create makes an object.
func (r objects[T, L]) Create(ctx context.Context, obj T, o metav1.CreateOptions) (T, error) {
	got := r.one()
	err := r.on(r.client.Post()).VersionedParams(&o, r.params).Body(obj).Do(ctx).Into(got)
	return got, err
}

// Update writes an object over the version of it that was read.
func (r objects[T, L]) Update(ctx context.Context, obj T, o metav1.UpdateOptions) (T, error) {
	got := r.one()
	err := r.on(r.client.Put()).Name(obj.GetName()).VersionedParams(&o, r.params).Body(obj).Do(ctx).Into(got)
	return got, err
}

// Delete removes an object.
func (r objects[T, L]) Delete(ctx context.Context, name string, o metav1.DeleteOptions) error {
	return r.on(r.client.Delete()).Name(name).Body(&o).Do(ctx).Error()
}
