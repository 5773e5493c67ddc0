package kube

import (
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/transport"
)

// discoveryTimeout is client-go's for such a request.
const discoveryTimeout = 32 * time.Second

// Connect makes the clients. kubeconfig names a file; when empty, KUBECONFIG,
// the user's own file, or the pod's service account is used, in this order.
// Nothing is sent yet.
func Connect(kubeconfig, userAgent string) (Clients, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = kubeconfig
	cfg, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).ClientConfig()
	if err != nil {
		return Clients{}, fmt.Errorf("finding the Kubernetes API: %w", err)
	}
	c, err := clients(cfg, userAgent)
	if err != nil {
		return Clients{}, fmt.Errorf("making a Kubernetes client: %w", err)
	}
	return c, nil
}

// readTokenAgain makes a refused token be read from its file again at once.
// client-go would go on with it for up to a minute.
func readTokenAgain(cfg *rest.Config) {
	if cfg.BearerTokenFile == "" {
		return
	}
	cfg.Wrap(transport.ResettableTokenSourceWrapTransport(transport.NewCachedFileTokenSource(cfg.BearerTokenFile)))
	cfg.BearerToken, cfg.BearerTokenFile = "", ""
}

func clients(cfg *rest.Config, userAgent string) (Clients, error) {
	cfg = rest.CopyConfig(cfg)
	cfg.UserAgent = userAgent
	readTokenAgain(cfg)
	// A dozen lists at the start and then watches: the API server's own fairness
	// is the limit that counts, and the client's default of 5 a second would
	// only delay the first list.
	cfg.QPS, cfg.Burst = 50, 100
	typed := rest.CopyConfig(cfg)
	typed.ContentType = runtime.ContentTypeProtobuf
	typed.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	find := rest.CopyConfig(cfg)
	find.Timeout = discoveryTimeout

	d, err := newDialect()
	if err != nil {
		return Clients{}, err
	}
	core, err := d.group(typed, corev1.SchemeGroupVersion)
	if err != nil {
		return Clients{}, err
	}
	slices, err := d.group(typed, discoveryv1.SchemeGroupVersion)
	if err != nil {
		return Clients{}, err
	}
	// A client of its own has its own rate: a busy watch can't delay the lease.
	lease, err := d.group(typed, coordinationv1.SchemeGroupVersion)
	if err != nil {
		return Clients{}, err
	}
	events, err := d.group(typed, corev1.SchemeGroupVersion)
	if err != nil {
		return Clients{}, err
	}
	sliceWrites, err := d.group(typed, discoveryv1.SchemeGroupVersion)
	if err != nil {
		return Clients{}, err
	}
	resources, err := d.group(find, corev1.SchemeGroupVersion)
	if err != nil {
		return Clients{}, err
	}
	c := Clients{
		Namespaces: objects[*corev1.NamespaceList]{core, d.params, "namespaces", func() *corev1.NamespaceList { return new(corev1.NamespaceList) }},
		Services:   objects[*corev1.ServiceList]{core, d.params, "services", func() *corev1.ServiceList { return new(corev1.ServiceList) }},
		Pods:       objects[*corev1.PodList]{core, d.params, "pods", func() *corev1.PodList { return new(corev1.PodList) }},
		Slices:     objects[*discoveryv1.EndpointSliceList]{slices, d.params, "endpointslices", func() *discoveryv1.EndpointSliceList { return new(discoveryv1.EndpointSliceList) }},
		Leases:     func(namespace string) leases { return leaseAPI{lease, d.params, namespace} },
		Discovery:  discovery{resources},
		Events:     eventAPI{events},

		SliceWrites: sliceAPI{sliceWrites},
	}
	if c.Metadata, err = metadata.NewForConfig(cfg); err != nil {
		return Clients{}, err
	}
	if c.Dynamic, err = dynamic.NewForConfig(cfg); err != nil {
		return Clients{}, err
	}
	if c.Writes, err = dynamic.NewForConfig(cfg); err != nil {
		return Clients{}, err
	}
	return c, nil
}
