// Package cluster starts a real Kubernetes on this machine, for tests: etcd, the
// control plane, kubelet, kube-proxy, containerd and CoreDNS on nodes that are
// made of namespaces (package node). It changes nothing of the machine outside
// its state directory but one network interface, and Down removes that, too. A
// cluster outlives the program that started it.
package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/weftmesh/weft/e2e/internal/node"
)

// Target is a cluster as most tests see it, whoever started it.
type Target interface {
	// Kubeconfig is the file by which an administrator reaches it.
	Kubeconfig() string
	// Load makes the images of archives known to its nodes.
	Load(ctx context.Context, tars ...string) error
}

// Cluster is a cluster of this package.
type Cluster struct {
	opts    Options
	place   place
	sw      *node.Switch
	program string
	api     *api
	nodes   []*node.Node
}

var _ Target = (*Cluster)(nil)

// limit is how long a step may take before Up gives up. A machine that builds
// and tests at the same time is slow.
const limit = 3 * time.Minute

// Up starts a cluster and returns when its nodes and its DNS are ready. Of one
// that runs already it starts the nodes that it lacks. After an error, what was
// started stays, with its logs, until Down.
func Up(ctx context.Context, o Options) (*Cluster, error) {
	o, err := o.fill()
	if err != nil {
		return nil, err
	}
	if err := Missing(o); err != nil {
		return nil, err
	}
	unlock, err := lock(o.Dir)
	if err != nil {
		return nil, err
	}
	defer unlock()
	c, err := open(ctx, o)
	if err != nil {
		return nil, err
	}
	for number := 1; number <= max(o.Nodes, len(c.nodes)); number++ {
		if err := c.settle(ctx, number); err != nil {
			return nil, c.explain(ctx, err)
		}
	}
	return c, nil
}

// open finds what there is of the cluster; the network, its addresses and keys
// are made if they are not there. The caller holds the lock.
func open(ctx context.Context, o Options) (*Cluster, error) {
	c := &Cluster{opts: o}
	var err error
	if c.program, err = programPath(ctx, o.Dir); err != nil {
		return nil, err
	}
	if c.sw, err = node.OpenSwitch(ctx, c.program, o.Dir); err != nil {
		return nil, err
	}
	return c, c.join(ctx)
}

// Attach finds a cluster that runs, which another program may have started.
func Attach(ctx context.Context, o Options) (*Cluster, error) {
	o, err := o.fill()
	if err != nil {
		return nil, err
	}
	if running, err := nodesOf(o.Dir, o.Name); err != nil || len(running) == 0 {
		return nil, errors.Join(fmt.Errorf("no cluster %s runs in %s (start it with weft-cluster up)", o.Name, o.Dir), err)
	}
	unlock, err := lock(o.Dir)
	if err != nil {
		return nil, err
	}
	defer unlock()
	return open(ctx, o)
}

func (c *Cluster) dir() string { return filepath.Join(c.opts.Dir, c.opts.Name) }

// join finds the cluster's addresses, keys and nodes, or makes the first two.
func (c *Cluster) join(ctx context.Context) error {
	r, err := enroll(c.opts.Dir, c.opts.Name, c.opts.IPv6)
	if err != nil {
		return err
	}
	c.place = place{c.opts.Name, r.Number, c.sw.Range, r.IPv6}
	if r.IPv6 {
		if err := c.sw.Enable6(ctx); err != nil {
			return err
		}
	}
	a, err := c.authorities()
	if err != nil {
		return err
	}
	if _, err := os.Stat(c.Kubeconfig()); err != nil {
		if err := a.writeKubeconfig(c.Kubeconfig(), c.place.server(), c.place.name, administrator); err != nil {
			return err
		}
	}
	admin, err := a.cluster.Leaf(administrator)
	if err != nil {
		return err
	}
	if c.api, err = newAPI(c.place.server(), a.cluster, admin); err != nil {
		return err
	}
	c.nodes, err = nodesOf(c.opts.Dir, c.opts.Name)
	return err
}

func (c *Cluster) authorities() (authorities, error) {
	return openAuthorities(filepath.Join(c.dir(), "pki"))
}

// Kubeconfig is the administrator's file.
func (c *Cluster) Kubeconfig() string { return filepath.Join(c.dir(), kubeconfigFile) }

// Load imports image archives into every node.
func (c *Cluster) Load(ctx context.Context, tars ...string) error {
	errs := make([]error, len(c.nodes))
	var wait sync.WaitGroup
	for i, n := range c.nodes {
		wait.Go(func() { errs[i] = load(ctx, n, tars) })
	}
	wait.Wait()
	return errors.Join(errs...)
}

// Node returns the node of the name ("n1"), or nil if there is none.
func (c *Cluster) Node(name string) *node.Node {
	for _, n := range c.nodes {
		if n.Host == name {
			return n
		}
	}
	return nil
}

// NodeAddress is the address at which this machine reaches the cluster's first
// node, for NodePorts and host ports.
func (c *Cluster) NodeAddress() netip.Addr { return c.place.network.Node(c.place.number, 1) }

// Down ends the cluster and removes all that is left of it.
func (c *Cluster) Down(ctx context.Context) error { return Down(ctx, c.opts) }

// step tells what is done.
func (c *Cluster) step(format string, args ...any) { c.opts.Progress(fmt.Sprintf(format, args...)) }
