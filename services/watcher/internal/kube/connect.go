package kube

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

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
	return clients(cfg, userAgent)
}

func clients(cfg *rest.Config, userAgent string) (Clients, error) {
	cfg = rest.CopyConfig(cfg)
	cfg.UserAgent = userAgent
	// A dozen lists at the start and then watches: the API server's own fairness
	// is the limit that counts, and the client's default of 5 a second would
	// only delay the first list.
	cfg.QPS, cfg.Burst = 50, 100
	typed := rest.CopyConfig(cfg)
	typed.ContentType = runtime.ContentTypeProtobuf
	typed.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	lease := rest.CopyConfig(typed)
	// Longer than that and the lease is lost anyway.
	lease.Timeout = Election{}.withDefaults().Renew / 2

	var c Clients
	var err error
	if c.Typed, err = kubernetes.NewForConfig(typed); err != nil {
		return Clients{}, fmt.Errorf("making a Kubernetes client: %w", err)
	}
	if c.Lease, err = kubernetes.NewForConfig(lease); err != nil {
		return Clients{}, fmt.Errorf("making a Kubernetes client: %w", err)
	}
	if c.Metadata, err = metadata.NewForConfig(cfg); err != nil {
		return Clients{}, fmt.Errorf("making a Kubernetes client: %w", err)
	}
	if c.Dynamic, err = dynamic.NewForConfig(cfg); err != nil {
		return Clients{}, fmt.Errorf("making a Kubernetes client: %w", err)
	}
	if c.Discovery, err = discovery.NewDiscoveryClientForConfig(cfg); err != nil {
		return Clients{}, fmt.Errorf("making a Kubernetes client: %w", err)
	}
	return c, nil
}
