package main

import (
	"errors"
	"net/netip"
	"strings"

	"github.com/weftmesh/weft/bus"
	"github.com/weftmesh/weft/services/kit/conf"
	"github.com/weftmesh/weft/services/kit/obs"
	"github.com/weftmesh/weft/services/kit/rpc"
	"github.com/weftmesh/weft/services/policy/internal/derive"
	"github.com/weftmesh/weft/services/policy/internal/serve"
)

// config has the names that Linkerd's policy controller gives its settings.
type config struct {
	Listen                       conf.Addr `help:"address of the gRPC API"`
	ClusterNetworks              []string  `help:"networks that hold every address of the cluster"`
	IdentityDomain               string    `help:"domain that ends every workload identity"`
	ClusterDomain                string    `help:"domain that ends every Service name"`
	DefaultPolicy                string    `help:"policy for ports that no Server selects: deny, audit, all-unauthenticated, all-authenticated, cluster-unauthenticated or cluster-authenticated"`
	ControlPlaneNamespace        string    `help:"namespace of the control plane, a part of every workload identity"`
	ProbeNetworks                []string  `help:"networks of the kubelets' probes; empty means probes are not let in by themselves"`
	DefaultOpaquePorts           string    `help:"ports of a Service that are opaque unless it lists its own"`
	AllowL5dRequestHeaders       bool      `help:"let l5d-* request headers override retries and timeouts"`
	GlobalEgressNetworkNamespace string    `help:"namespace whose egress networks hold for every client whose own namespace has none"`
	RequireReferenceGrants       bool      `help:"send nothing to a backend in another namespace than the route's unless a ReferenceGrant there allows it; otherwise only namespaces that hold grants for routes are so strict"`
	Webhooks
	Bus   bus.Config   `help:"where the mesh's log is"`
	RPC   rpc.Config   `help:"bounds of the gRPC server"`
	Serve serve.Config `help:"bounds of the streams"`
	Obs   obs.Config   `help:"logs, metrics and traces"`
}

// defaults are those of Linkerd's chart. Source: spec/destination-policy.md §7.
func defaults() config {
	return config{
		Listen:                       ":8090",
		ClusterNetworks:              []string{"10.0.0.0/8", "100.64.0.0/10", "172.16.0.0/12", "192.168.0.0/16"},
		IdentityDomain:               "cluster.local",
		ClusterDomain:                "cluster.local",
		DefaultPolicy:                string(derive.AllUnauthenticated),
		ControlPlaneNamespace:        "linkerd",
		ProbeNetworks:                []string{"0.0.0.0/0", "::/0"},
		DefaultOpaquePorts:           "25,587,3306,4444,5432,6379,9300,11211",
		GlobalEgressNetworkNamespace: "linkerd-egress",
		Webhooks:                     defaultWebhooks(),
		Obs:                          obs.Config{Admin: "127.0.0.1:9990"},
	}
}

// Check judges the settings; each problem names its field.
func (c config) Check() error {
	_, err := c.cluster()
	return err
}

// cluster reads the settings of the cluster. It reports every problem at once.
func (c config) cluster() (derive.Cluster, error) {
	var p problems
	out := derive.Cluster{
		Networks:              p.networks("ClusterNetworks", c.ClusterNetworks),
		ProbeNetworks:         p.networks("ProbeNetworks", c.ProbeNetworks),
		IdentityDomain:        p.domain("IdentityDomain", c.IdentityDomain),
		Domain:                p.domain("ClusterDomain", c.ClusterDomain),
		ControlPlaneNamespace: p.label("ControlPlaneNamespace", c.ControlPlaneNamespace),
		AllowHeaders:          c.AllowL5dRequestHeaders,
		EgressNamespace:       p.label("GlobalEgressNetworkNamespace", c.GlobalEgressNetworkNamespace),
		RequireGrants:         c.RequireReferenceGrants,
	}
	if len(c.ClusterNetworks) == 0 {
		p.add("ClusterNetworks", "must not be empty: every address would be outside the cluster")
	}
	var err error
	if out.DefaultPolicy, err = derive.ParseDefaultPolicy(c.DefaultPolicy); err != nil {
		p.add("DefaultPolicy", err.Error())
	}
	if out.OpaquePorts, err = derive.ParsePorts(c.DefaultOpaquePorts); err != nil {
		p.add("DefaultOpaquePorts", strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	if c.Listen == "" {
		p.add("Listen", "must not be empty")
	}
	if c.WebhookLinger < 0 {
		p.add("WebhookLinger", "must not be negative")
	}
	return out, p.err()
}

// problems collects what is wrong, each with its field.
type problems struct{ errs []error }

func (p *problems) err() error { return errors.Join(p.errs...) }

func (p *problems) add(field, text string) {
	p.errs = append(p.errs, conf.Bad(field, "%s", text))
}

func (p *problems) networks(field string, list []string) []netip.Prefix {
	networks, err := derive.ParseNetworks(list)
	if err != nil {
		p.add(field, strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	return networks
}

// domain checks a DNS name and takes a dot at its end off.
func (p *problems) domain(field, name string) string {
	name = strings.TrimSuffix(name, ".")
	for label := range strings.SplitSeq(name, ".") {
		if !derive.IsLabel(label) {
			p.add(field, `"`+name+`" is not a domain such as cluster.local`)
			break
		}
	}
	return name
}

func (p *problems) label(field, name string) string {
	if !derive.IsLabel(name) {
		p.add(field, `"`+name+`" is not the name of a namespace`)
	}
	return name
}
