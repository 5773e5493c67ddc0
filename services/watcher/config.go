package main

import (
	"cmp"
	"crypto/rand"
	"errors"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/klog/v2"

	"github.com/weftmesh/weft/bus"
	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
	"github.com/weftmesh/weft/services/kit/build"
	"github.com/weftmesh/weft/services/kit/conf"
	"github.com/weftmesh/weft/services/kit/obs"
	"github.com/weftmesh/weft/services/watcher/internal/dir"
	"github.com/weftmesh/weft/services/watcher/internal/kube"
	"github.com/weftmesh/weft/services/watcher/internal/source"
)

type config struct {
	Source string   `help:"where objects come from: kube or dir"`
	Dir    []string `help:"directories of manifests for -source dir, commas between; of two objects with one name the first directory's counts"`
	Derive bool     `help:"with -source dir, make endpoints from Services and Pods where the files hold no EndpointSlice"`

	Kubeconfig string `help:"file that tells where the Kubernetes API is; empty means KUBECONFIG, else the pod's own service account"`
	Namespace  string `help:"namespace of the lease weft-watcher"`
	Identity   string `help:"name of this process in the lease; empty means host name and a random word"`
	Elect      bool   `help:"with -source kube, write the log only while holding the lease; false means that this is the only watcher. without a lease, as with -source dir, a watcher stands by while it hears another one write"`

	ClusterDomain       string `help:"domain that ends every Service name; said in the log, as are the next two"`
	IdentityTrustDomain string `help:"trust domain of identities; empty means the cluster domain"`
	ControllerNamespace string `help:"namespace of the control plane; empty means that of -namespace"`

	Bus     bus.Config        `help:"where the mesh's log is"`
	History bus.HistoryConfig `help:"how much of the log is kept; nobody but weft history reads it"`
	Obs     obs.Config        `help:"logs, metrics and traces"`
}

// presenceEvery is how soon a change of leader or a skipped object is seen by
// whoever asks for the status.
const presenceEvery = 2 * time.Second

func defaults() config {
	return config{
		Source:    "kube",
		Derive:    true,
		Namespace: "linkerd",
		Elect:     true,

		ClusterDomain: "cluster.local",
		History:       bus.HistoryConfig{Domain: bus.HistoryDomain},
		Obs:           obs.Config{Admin: "127.0.0.1:9989"},
	}
}

// Check judges the settings that depend on each other.
func (c config) Check() error {
	if c.ClusterDomain == "" {
		return conf.Bad("ClusterDomain", "is empty; every Service name ends with it")
	}
	switch c.Source {
	case "kube":
		if len(c.Dir) > 0 {
			return conf.Bad("Dir", "is for -source dir only")
		}
		if c.Namespace == "" {
			return conf.Bad("Namespace", "is empty; the lease must be in a namespace")
		}
	case "dir":
		if len(c.Dir) == 0 {
			return conf.Bad("Dir", "is empty; name at least one directory of manifests")
		}
		for _, d := range c.Dir {
			if strings.TrimSpace(d) == "" {
				return conf.Bad("Dir", "names an empty directory")
			}
		}
	default:
		return conf.Bad("Source", "%q is neither kube nor dir", c.Source)
	}
	return nil
}

// cluster is what the log says of the cluster it is of.
func (c config) cluster(name string) *busv1.Cluster {
	return &busv1.Cluster{
		Name:                name,
		Domain:              c.ClusterDomain,
		TrustDomain:         cmp.Or(c.IdentityTrustDomain, c.ClusterDomain),
		ControllerNamespace: cmp.Or(c.ControllerNamespace, c.Namespace),
	}
}

// newSource makes the source that the settings ask for.
func newSource(cfg config, reg prometheus.Registerer, log *slog.Logger) (source.Source, error) {
	if cfg.Source == "dir" {
		return dir.New(dir.Config{Paths: cfg.Dir, Derive: cfg.Derive, Log: log}), nil
	}
	klog.SetSlogLogger(log) // client-go's words, in our form and at our level
	clients, err := kube.Connect(cfg.Kubeconfig, "weft-watcher/"+build.Version())
	if err != nil {
		return nil, err
	}
	return kube.New(clients, kube.Config{
		Election: kube.Election{
			Alone: !cfg.Elect, Namespace: cfg.Namespace, Identity: identity(cfg.Identity), Owner: kube.Account(cfg.Namespace),
		},
		Registry: reg,
		Log:      log,
	}), nil
}

// identity names this process in the lease. A host name alone would be shared
// with the process that ran here before.
func identity(given string) string {
	if given != "" {
		return given
	}
	host, err := os.Hostname()
	if err != nil {
		host = "watcher"
	}
	return host + "_" + rand.Text()[:8]
}

var errNotListed = errors.New("the complete list of objects is not in yet")

func synced(src source.Source) func() error {
	return func() error {
		select {
		case <-src.Synced():
			return nil
		default:
			return errNotListed
		}
	}
}
