package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/weftmesh/weft/bus"
	"github.com/weftmesh/weft/services/kit/conf"
	"github.com/weftmesh/weft/services/kit/obs"
	"github.com/weftmesh/weft/services/mirror/internal/derive"
	"github.com/weftmesh/weft/services/mirror/internal/dir"
	"github.com/weftmesh/weft/services/mirror/internal/kube"
	"github.com/weftmesh/weft/services/mirror/internal/link"
	"github.com/weftmesh/weft/services/mirror/internal/probe"
)

type config struct {
	ClusterName              string     `help:"the other cluster's name; copies are called <service>-<name>"`
	Link                     string     `help:"Linkerd's Link resource, which then says all that the flags about cluster, gateway and selection say: its name, namespace/name (default linkerd-multicluster), or file:PATH"`
	LocalMirror              bool       `help:"take care of this cluster's own members of federated services, read from its -bus"`
	Remote                   bus.Config `help:"the other cluster's bus; its cluster is -cluster-name unless given"`
	RemoteDomain             string     `help:"the other cluster's DNS domain"`
	RemoteTrustDomain        string     `help:"what identities of the other cluster end in"`
	Gateway                  gateway    `help:"the other cluster's gateway; without one its pods are reached directly"`
	Selector                 string     `help:"labels of services that get a copy with endpoints; only labels of mirror.linkerd.io and multicluster.linkerd.io are known; empty selects none"`
	RemoteDiscoverySelector  string     `help:"labels of services that are looked up in the other cluster by each client's control plane; empty selects none"`
	FederatedServiceSelector string     `help:"labels of services that join the federated service of their name; empty selects none"`
	ExcludedAnnotations      []string   `help:"annotations that are not copied; prefix/* for all that begin so"`
	ExcludedLabels           []string   `help:"labels that are not copied; prefix/* for all that begin so"`
	EnableNamespaceCreation  bool       `help:"for -sink kube: make a namespace that a copy needs; without it such services are reported and skipped"`
	Sink                     string     `help:"where copies are written: kube or dir"`
	Dir                      string     `help:"for -sink dir: the directory, which a watcher reads"`
	Kubeconfig               string     `help:"for -sink kube: kubeconfig; empty means the pod's own account"`
	Unlink                   bool       `help:"remove every copy of the cluster and end"`
	Bus                      bus.Config `help:"this cluster's bus, to announce this process; with no servers it is not announced"`
	Obs                      obs.Config `help:"logs, metrics and traces"`
}

// gateway is how the other cluster is entered.
type gateway struct {
	Address  []string `help:"IP addresses or host names of the gateway"`
	Port     uint16   `help:"port of the gateway's proxy"`
	Identity string   `help:"identity of the gateway's proxy"`
	// ProbePath and ProbePort say where the gateway tells that it lives.
	ProbePath string `help:"path at which the gateway is asked every 3 s whether it lives, as /ready; empty: it is not asked"`
	ProbePort uint16 `help:"port for that"`
}

func defaults() config {
	return config{
		RemoteDomain:      "cluster.local",
		RemoteTrustDomain: "cluster.local",
		Gateway:           gateway{Port: 4143, ProbePort: 4191},

		Selector:                 "mirror.linkerd.io/exported=true",
		RemoteDiscoverySelector:  "mirror.linkerd.io/exported=remote-discovery",
		FederatedServiceSelector: "mirror.linkerd.io/federated=member",

		Sink: "kube",
		Obs:  obs.Config{Admin: "127.0.0.1:9999"},
	}
}

// Check judges the settings.
func (c config) Check() error {
	var errs []error
	switch problems := validation.IsDNS1123Label(c.ClusterName); {
	case c.LocalMirror && c.Link != "":
		errs = append(errs, conf.Bad("Link", "%q is about another cluster, and -local-mirror is about this one", c.Link))
	case c.Link != "" && c.ClusterName == "":
	case c.LocalMirror && c.ClusterName != "":
		errs = append(errs, conf.Bad("ClusterName", "%q names another cluster, and -local-mirror is about this one", c.ClusterName))
	case c.LocalMirror && !c.Unlink && len(c.Bus.Servers) == 0:
		errs = append(errs, conf.Bad("LocalMirror", "it needs -bus.servers, this cluster's bus"))
	case !c.LocalMirror && len(problems) > 0:
		errs = append(errs, conf.Bad("ClusterName", "%q is not a DNS label: %s", c.ClusterName, problems[0]))
	}
	for field, text := range map[string]string{
		"Selector": c.Selector, "RemoteDiscoverySelector": c.RemoteDiscoverySelector, "FederatedServiceSelector": c.FederatedServiceSelector,
	} {
		if _, err := selector(text); err != nil {
			errs = append(errs, conf.Bad(field, "%w", err))
		}
	}
	switch {
	case c.Sink != "kube" && c.Sink != "dir":
		errs = append(errs, conf.Bad("Sink", "%q is neither kube nor dir", c.Sink))
	case c.Sink == "dir" && c.Dir == "":
		errs = append(errs, conf.Bad("Dir", "it is empty, and -sink dir needs it"))
	}
	return errors.Join(errs...)
}

// Check judges the gateway's settings.
func (g gateway) Check() error {
	switch {
	case (len(g.Address) == 0) != (g.Identity == ""):
		return conf.Bad("Identity", "a gateway needs both address and identity: a client must know whom it talks to")
	case g.Port == 0:
		return conf.Bad("Port", "it is 0")
	case g.ProbePort == 0:
		return conf.Bad("ProbePort", "it is 0")
	case g.ProbePath != "" && !strings.HasPrefix(g.ProbePath, "/"):
		return conf.Bad("ProbePath", "%q does not begin with a slash", g.ProbePath)
	}
	return nil
}

// selector reads a label selector; empty selects nothing, as in a Link.
func selector(text string) (labels.Selector, error) {
	if strings.TrimSpace(text) == "" {
		return labels.Nothing(), nil
	}
	s, err := labels.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("%q is not a label selector: %w", text, err)
	}
	return s, link.Known(s)
}

// rules are those of the selectors, which Check has judged.
func (c config) rules() (derive.Rules, error) {
	r := derive.Rules{ExcludedAnnotations: c.ExcludedAnnotations, ExcludedLabels: c.ExcludedLabels}
	var errs [3]error
	r.Exported, errs[0] = selector(c.Selector)
	r.RemoteDiscovery, errs[1] = selector(c.RemoteDiscoverySelector)
	r.Federated, errs[2] = selector(c.FederatedServiceSelector)
	if c.LocalMirror { // a cluster has no copies of its own services
		r.Exported, r.RemoteDiscovery = labels.Nothing(), labels.Nothing()
	}
	return r, errors.Join(errs[:]...)
}

// remote is the bus whose services are taken over.
func (c config) remote() bus.Config {
	if c.LocalMirror {
		return c.Bus
	}
	r := c.Remote
	if r.Cluster == "" {
		r.Cluster = c.ClusterName
	}
	return r
}

func (c config) gateway(rules derive.Rules, ask prober) resolver {
	probe := link.Probe{Path: c.Gateway.ProbePath, Port: c.Gateway.ProbePort, Period: 3 * time.Second, Timeout: 30 * time.Second, Threshold: 3}
	return resolver{
		link: derive.Link{Cluster: c.ClusterName, Rules: rules, Domain: c.RemoteDomain, TrustDomain: c.RemoteTrustDomain},
		gw:   c.Gateway, lookup: net.DefaultResolver.LookupNetIP, probe: probe, ask: ask,
	}
}

// prober asks the gateway whether it lives.
type prober interface {
	Aim(t probe.Target)
	Alive() bool
}

// resolver finds a gateway's addresses, each time it is asked.
type resolver struct {
	link   derive.Link
	gw     gateway
	probe  link.Probe
	ask    prober // nil: nobody asks
	lookup func(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// Link says how the other cluster is reached now. A host name that cannot be
// resolved is an error: the copies keep the addresses they have.
func (r resolver) Link(ctx context.Context) (derive.Link, error) {
	out := r.link
	out.Gateway = derive.Gateway{Port: r.gw.Port, Identity: r.gw.Identity}
	for _, host := range r.gw.Address {
		if addr, err := netip.ParseAddr(host); err == nil {
			out.Gateway.Addresses = append(out.Gateway.Addresses, addr.Unmap())
			continue
		}
		addrs, err := r.lookup(ctx, "ip", host)
		if err != nil {
			return derive.Link{}, fmt.Errorf("resolving the gateway %s: %w", host, err)
		}
		for _, a := range addrs {
			out.Gateway.Addresses = append(out.Gateway.Addresses, a.Unmap())
		}
	}
	slices.SortFunc(out.Gateway.Addresses, netip.Addr.Compare)
	out.Gateway.Addresses = slices.Compact(out.Gateway.Addresses)
	if r.ask != nil {
		p := r.probe
		r.ask.Aim(probe.Target{
			Addresses: out.Gateway.Addresses, Path: p.Path, Port: p.Port, Period: p.Period, Timeout: p.Timeout, Threshold: p.Threshold,
		})
		out.Gateway.Dead = !r.ask.Alive()
	}
	return out, nil
}

// Report tells nobody: there is no Link whose status it could be.
func (r resolver) Report(context.Context, link.Outcome) error { return nil }

// openSink opens what -sink asks for.
func openSink(cfg config) (sink, error) {
	if cfg.Sink == "dir" {
		info, err := os.Stat(cfg.Dir)
		if err != nil {
			return nil, fmt.Errorf("opening the directory of copies: %w", err)
		}
		if !info.IsDir() {
			return nil, fmt.Errorf("opening the directory of copies: %s is not a directory", cfg.Dir)
		}
		return &dir.Sink{Path: cfg.Dir, Cluster: cfg.ClusterName}, nil
	}
	here, err := localCluster(cfg.Kubeconfig)
	if err != nil {
		return nil, err
	}
	api, err := kube.Connect(here)
	if err != nil {
		return nil, fmt.Errorf("making the Kubernetes client: %w", err)
	}
	return &kube.Sink{Client: api, Cluster: cfg.ClusterName, CreateNamespaces: cfg.EnableNamespaceCreation}, nil
}

// localCluster reads a kubeconfig, or finds the pod's own account.
func localCluster(kubeconfig string) (out *rest.Config, err error) {
	if kubeconfig == "" {
		out, err = rest.InClusterConfig()
	} else {
		out, err = clientcmd.BuildConfigFromFlags("", kubeconfig)
	}
	if err != nil {
		return nil, fmt.Errorf("configuring the Kubernetes client: %w", err)
	}
	out.Timeout = requestTimeout
	return out, nil
}
