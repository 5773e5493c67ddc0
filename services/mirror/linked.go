package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/weftmesh/weft/services/kit/conf"
	"github.com/weftmesh/weft/services/mirror/internal/derive"
	"github.com/weftmesh/weft/services/mirror/internal/feed"
	"github.com/weftmesh/weft/services/mirror/internal/kube"
	"github.com/weftmesh/weft/services/mirror/internal/link"
)

// resource is where a Link is.
type resource interface {
	Read(ctx context.Context) ([]byte, error)
	// Write applies a merge patch to the Link's status.
	Write(ctx context.Context, patch []byte) error
}

// linkFile is a Link in a file, whose status nobody reads.
type linkFile string

func (f linkFile) Read(context.Context) ([]byte, error) {
	b, err := os.ReadFile(string(f))
	if err != nil {
		return nil, fmt.Errorf("reading the Link: %w", err)
	}
	return b, nil
}

func (linkFile) Write(context.Context, []byte) error { return nil }

// usualNamespace is where Linkerd's Links are.
const usualNamespace = "linkerd-multicluster"

// openLink finds the Link that -link names.
func openLink(cfg config) (resource, error) {
	if file, ok := strings.CutPrefix(cfg.Link, "file:"); ok {
		return linkFile(file), nil
	}
	namespace, name, ok := strings.Cut(cfg.Link, "/")
	if !ok {
		namespace, name = usualNamespace, cfg.Link
	}
	here, err := localCluster(cfg.Kubeconfig)
	if err != nil {
		return nil, err
	}
	return kube.OpenLink(here, namespace, name)
}

// linked follows a Link: it is read anew for each round, so a change counts
// after half a minute at the latest, and whatever cannot be used changes nothing.
type linked struct {
	from    resource
	way     resolver
	feed    *feed.Feed
	cluster string
	rules   string // that feed has, as text
	status  link.Status
}

func (l *linked) Link(ctx context.Context) (derive.Link, error) {
	b, err := l.from.Read(ctx)
	if err != nil {
		return derive.Link{}, err
	}
	is, err := link.Parse(b)
	if err != nil {
		return derive.Link{}, err
	}
	if is.Cluster != l.cluster {
		return derive.Link{}, fmt.Errorf("the Link is to cluster %s now, and this process mirrors %s: end it with -unlink and start another", is.Cluster, l.cluster)
	}
	l.status = is.Status
	if text := fmt.Sprint(is.Rules); text != l.rules {
		l.feed.Select(is.Rules)
		l.rules = text
	}
	way := l.way
	way.link.Domain, way.link.Rules = is.Domain, is.Rules
	way.gw, way.probe = gateway{Address: is.Gateway.Addresses, Port: is.Gateway.Port, Identity: is.Gateway.Identity}, is.Gateway.Probe
	return way.Link(ctx)
}

func (l *linked) Report(ctx context.Context, o link.Outcome) error {
	next := l.status.Next(o, l.cluster, time.Now())
	patch, err := l.status.Patch(next)
	if err != nil || patch == nil {
		return err
	}
	return l.from.Write(ctx, patch)
}

// follow fills in what a Link says of the cluster; the rest of it is read for
// each round.
func follow(ctx context.Context, cfg config) (config, resource, error) {
	if cfg.Link == "" {
		return cfg, nil, nil
	}
	from, err := openLink(cfg)
	if err != nil {
		return cfg, nil, err
	}
	b, err := from.Read(ctx)
	if err != nil {
		return cfg, nil, err
	}
	is, err := link.Parse(b)
	if err != nil {
		return cfg, nil, err
	}
	if cfg.ClusterName != "" && cfg.ClusterName != is.Cluster {
		return cfg, nil, conf.Bad("ClusterName", "it is %q, and the Link's %q", cfg.ClusterName, is.Cluster)
	}
	cfg.ClusterName = is.Cluster
	return cfg, from, nil
}

// ways say, for each round, how the other cluster is reached.
type ways interface {
	Link(ctx context.Context) (derive.Link, error)
	Report(ctx context.Context, o link.Outcome) error
}

// links is the Link's word, or that of the flags.
func (c config) links(rules derive.Rules, from resource, there *feed.Feed, ask prober) ways {
	if from == nil {
		return c.gateway(rules, ask)
	}
	return &linked{from: from, way: c.gateway(rules, ask), feed: there, cluster: c.ClusterName}
}
