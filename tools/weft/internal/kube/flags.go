// Package kube is the command's one door to Kubernetes: which cluster, as whom,
// and the few calls that commands make there. It decides nothing about the
// mesh. Its errors are in words for a person and keep the API server's status,
// so that apierrors.IsNotFound and errors.As work on them.
package kube

import (
	"cmp"
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
)

// Flags say which cluster a command means, as whom it comes, and where the mesh is.
type Flags struct {
	Kubeconfig string   // path; empty means $KUBECONFIG, then ~/.kube/config
	Context    string   // empty means the kubeconfig's current one
	As         string   // user to impersonate; empty means nobody
	AsGroups   []string // groups to impersonate
	APIAddr    string   // host:port of the API server instead of the kubeconfig's
	Mesh       string   // the control plane's namespace
	CNI        string   // the CNI plugin's namespace
}

const (
	defaultMesh = "linkerd"
	defaultCNI  = "linkerd-cni"
	// requestTime bounds each request, so that a dead API server is noticed.
	requestTime = 30 * time.Second
	// A check asks many things at once; client-go's 5 a second would make it crawl.
	requestRate, requestBurst = 50, 100
)

// Bind adds the flags to fs, which should be the persistent flags of the tree's root.
func (f *Flags) Bind(fs *pflag.FlagSet) {
	fs.StringVar(&f.Kubeconfig, "kubeconfig", "", "path of the kubeconfig file (default: $KUBECONFIG, then ~/.kube/config)")
	fs.StringVar(&f.Context, "context", "", "the kubeconfig's context to use (default: its current one)")
	fs.StringVar(&f.As, "as", "", "user to impersonate for what is asked of Kubernetes")
	fs.StringArrayVar(&f.AsGroups, "as-group", nil, "group to impersonate; may be repeated")
	fs.StringVar(&f.APIAddr, "api-addr", "", "host:port of the API server, instead of the kubeconfig's (for tests)")
	fs.StringVarP(&f.Mesh, "linkerd-namespace", "L", cmp.Or(os.Getenv("LINKERD_NAMESPACE"), defaultMesh),
		"namespace of the control plane ($LINKERD_NAMESPACE)")
	fs.StringVar(&f.CNI, "cni-namespace", defaultCNI, "namespace of the CNI plugin")
}

// From reads the flags that Bind added to the root of cmd's tree. Where they
// were not bound it gives the defaults.
func From(cmd *cobra.Command) *Flags {
	f := &Flags{Mesh: defaultMesh, CNI: defaultCNI}
	fs := cmd.Flags()
	for name, into := range map[string]*string{
		"kubeconfig": &f.Kubeconfig, "context": &f.Context, "as": &f.As, "api-addr": &f.APIAddr,
		"linkerd-namespace": &f.Mesh, "cni-namespace": &f.CNI,
	} {
		if value, err := fs.GetString(name); err == nil {
			*into = value
		}
	}
	if groups, err := fs.GetStringArray("as-group"); err == nil {
		f.AsGroups = groups
	}
	return f
}

// loader reads the kubeconfig and lays the flags over it.
func (f *Flags) loader() clientcmd.ClientConfig {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = f.Kubeconfig
	rules.WarnIfAllMissing = false
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{
		CurrentContext: f.Context,
		AuthInfo:       api.AuthInfo{Impersonate: f.As, ImpersonateGroups: f.AsGroups},
		ClusterInfo:    api.Cluster{Server: f.APIAddr},
	})
}

// Connect reads the kubeconfig and makes a client. Nothing is sent yet.
func (f *Flags) Connect() (*Client, error) {
	cfg, err := f.loader().ClientConfig()
	if err != nil {
		return nil, f.badConfig(err)
	}
	cfg.Timeout = requestTime
	cfg.QPS, cfg.Burst = requestRate, requestBurst
	cfg.UserAgent = "weft"
	cfg.WarningHandler = rest.NoWarnings{} // deprecations are for those who write manifests
	return newClient(cfg, f)
}
