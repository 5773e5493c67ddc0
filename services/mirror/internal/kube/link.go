package kube

import (
	"context"
	"fmt"
	"net/url"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
)

// LinkResource is one Link in the local cluster.
type LinkResource struct {
	client rest.Interface
	path   string
}

// OpenLink makes a client for a Link; nothing is sent yet.
func OpenLink(cfg *rest.Config, namespace, name string) (*LinkResource, error) {
	cfg = rest.CopyConfig(cfg)
	readTokenAgain(cfg)
	cfg.APIPath, cfg.GroupVersion = "/api", &corev1.SchemeGroupVersion // of paths that are absolute, neither counts
	cfg.NegotiatedSerializer = serializer.NewCodecFactory(runtime.NewScheme()).WithoutConversion()
	client, err := rest.RESTClientFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("making a client for the Link: %w", err)
	}
	return &LinkResource{client: client, path: "/apis/multicluster.linkerd.io/v1alpha3/namespaces/" +
		url.PathEscape(namespace) + "/links/" + url.PathEscape(name)}, nil
}

// Read gives the resource as it is now, JSON.
func (l *LinkResource) Read(ctx context.Context) ([]byte, error) {
	b, err := l.client.Get().AbsPath(l.path).Do(ctx).Raw()
	if err != nil {
		return nil, fmt.Errorf("reading the Link: %w", err)
	}
	return b, nil
}

// Write applies a merge patch to its status.
func (l *LinkResource) Write(ctx context.Context, patch []byte) error {
	if err := l.client.Patch(types.MergePatchType).AbsPath(l.path + "/status").Body(patch).Do(ctx).Error(); err != nil {
		return fmt.Errorf("writing the Link's status: %w", err)
	}
	return nil
}
