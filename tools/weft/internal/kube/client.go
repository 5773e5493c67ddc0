package kube

import (
	"context"
	"fmt"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

// Manager is the name under which the command owns fields that it applies.
const Manager = "weft"

// Client talks to one cluster. Each call blocks until the API server answered,
// ctx ended or 30 s went by. Any number of goroutines may use it.
type Client struct {
	cfg   *rest.Config
	flags *Flags
	dyn   dynamic.Interface
	core  *rest.RESTClient

	mu    sync.Mutex
	kinds map[schema.GroupVersion][]Resource // grows by what is asked for
}

func newClient(cfg *rest.Config, flags *Flags) (*Client, error) {
	dyn, err := dynamic.NewForConfig(cfg)
	if err != nil {
		return nil, flags.badConfig(err)
	}
	known := runtime.NewScheme()
	metav1.AddToGroupVersion(known, schema.GroupVersion{Version: "v1"}) // so that a Status can be read
	one := rest.CopyConfig(cfg)
	one.APIPath, one.GroupVersion = "/api", &schema.GroupVersion{Version: "v1"}
	one.NegotiatedSerializer = serializer.NewCodecFactory(known).WithoutConversion()
	core, err := rest.RESTClientFor(one)
	if err != nil {
		return nil, flags.badConfig(err)
	}
	return &Client{cfg: cfg, flags: flags, dyn: dyn, core: core, kinds: make(map[schema.GroupVersion][]Resource)}, nil
}

// Namespace is where the control plane is.
func (c *Client) Namespace() string { return c.flags.Mesh }

// CNINamespace is where the CNI plugin is.
func (c *Client) CNINamespace() string { return c.flags.CNI }

// Host is the API server's address.
func (c *Client) Host() string { return c.cfg.Host }

// Get reads one object. ns is empty for what has no namespace.
func (c *Client) Get(ctx context.Context, gvr schema.GroupVersionResource, ns, name string) (*unstructured.Unstructured, error) {
	obj, err := c.on(gvr, ns).Get(ctx, name, metav1.GetOptions{})
	return obj, c.explain("reading "+describe(gvr.Resource, ns, name), err)
}

// pageSize is how many objects are asked for at once.
const pageSize = 500

// List reads all objects of a namespace that match a label selector. An empty ns
// means all namespaces, an empty selector all objects.
func (c *Client) List(ctx context.Context, gvr schema.GroupVersionResource, ns, selector string) ([]unstructured.Unstructured, error) {
	var all []unstructured.Unstructured
	o := metav1.ListOptions{LabelSelector: selector, Limit: pageSize}
	for {
		page, err := c.on(gvr, ns).List(ctx, o)
		if err != nil {
			return nil, c.explain("listing "+describe(gvr.Resource, ns, ""), err)
		}
		all = append(all, page.Items...)
		if o.Continue = page.GetContinue(); o.Continue == "" {
			return all, nil
		}
	}
}

// Option changes how something is written.
type Option func(*options)

type options struct {
	dryRun []string
}

// DryRun has the API server judge a change without making it.
func DryRun() Option { return func(o *options) { o.dryRun = []string{metav1.DryRunAll} } }

func collect(given []Option) options {
	var o options
	for _, option := range given {
		option(&o)
	}
	return o
}

// Apply makes obj what it says, whatever it was (server-side apply; fields of
// others are taken over).
func (c *Client) Apply(ctx context.Context, obj *unstructured.Unstructured, given ...Option) (*unstructured.Unstructured, error) {
	o := collect(given)
	to, err := c.at(ctx, obj)
	if err != nil {
		return nil, err
	}
	got, err := to.Apply(ctx, obj.GetName(), obj, metav1.ApplyOptions{FieldManager: Manager, Force: true, DryRun: o.dryRun})
	return got, c.explain("applying "+describeObject(obj), err)
}

// Create makes a new object. It fails if there is one (apierrors.IsAlreadyExists).
func (c *Client) Create(ctx context.Context, obj *unstructured.Unstructured, given ...Option) (*unstructured.Unstructured, error) {
	o := collect(given)
	to, err := c.at(ctx, obj)
	if err != nil {
		return nil, err
	}
	got, err := to.Create(ctx, obj, metav1.CreateOptions{FieldManager: Manager, DryRun: o.dryRun})
	return got, c.explain("creating "+describeObject(obj), err)
}

// Update writes obj over the version of it that was read.
func (c *Client) Update(ctx context.Context, obj *unstructured.Unstructured, given ...Option) (*unstructured.Unstructured, error) {
	o := collect(given)
	to, err := c.at(ctx, obj)
	if err != nil {
		return nil, err
	}
	got, err := to.Update(ctx, obj, metav1.UpdateOptions{FieldManager: Manager, DryRun: o.dryRun})
	return got, c.explain("updating "+describeObject(obj), err)
}

// Patch changes a part of an object.
func (c *Client) Patch(ctx context.Context, gvr schema.GroupVersionResource, ns, name string, kind types.PatchType, patch []byte, given ...Option) (*unstructured.Unstructured, error) {
	o := collect(given)
	got, err := c.on(gvr, ns).Patch(ctx, name, kind, patch, metav1.PatchOptions{FieldManager: Manager, DryRun: o.dryRun})
	return got, c.explain("patching "+describe(gvr.Resource, ns, name), err)
}

// Delete removes an object; what it owns follows in the background.
func (c *Client) Delete(ctx context.Context, gvr schema.GroupVersionResource, ns, name string, given ...Option) error {
	o := collect(given)
	background := metav1.DeletePropagationBackground
	err := c.on(gvr, ns).Delete(ctx, name, metav1.DeleteOptions{PropagationPolicy: &background, DryRun: o.dryRun})
	return c.explain("deleting "+describe(gvr.Resource, ns, name), err)
}

// Raw gets a path of the API server, with a query if it has one.
func (c *Client) Raw(ctx context.Context, path string) ([]byte, error) {
	body, err := c.core.Get().RequestURI(path).Do(ctx).Raw()
	return body, c.explain("asking for "+path, err)
}

func (c *Client) on(gvr schema.GroupVersionResource, ns string) dynamic.ResourceInterface {
	if ns == "" {
		return c.dyn.Resource(gvr)
	}
	return c.dyn.Resource(gvr).Namespace(ns)
}

// at finds where obj is kept.
func (c *Client) at(ctx context.Context, obj *unstructured.Unstructured) (dynamic.ResourceInterface, error) {
	r, err := c.Find(ctx, obj.GroupVersionKind())
	if err != nil {
		return nil, err
	}
	if !r.Namespaced {
		return c.on(r.GroupVersionResource, ""), nil
	}
	ns := obj.GetNamespace()
	if ns == "" {
		ns = metav1.NamespaceDefault
	}
	return c.on(r.GroupVersionResource, ns), nil
}

// describe names objects in words.
func describe(resource, ns, name string) string {
	switch {
	case name == "" && ns == "":
		return resource
	case name == "":
		return fmt.Sprintf("%s in namespace %s", resource, ns)
	case ns == "":
		return resource + "/" + name
	}
	return fmt.Sprintf("%s/%s in namespace %s", resource, name, ns)
}

func describeObject(obj *unstructured.Unstructured) string {
	return describe(strings.ToLower(obj.GetKind()), obj.GetNamespace(), obj.GetName())
}

func isSub(resource string) bool { return strings.Contains(resource, "/") }

func isNotFound(err error) bool { return apierrors.IsNotFound(err) }
