package cluster

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/weftmesh/weft/e2e/internal/node"
	"github.com/weftmesh/weft/e2e/internal/pki"
)

// launch starts the node of the number, whose components do not run yet.
func (c *Cluster) launch(ctx context.Context, number int) (*node.Node, error) {
	name := nodeName(number)
	dir := filepath.Join(c.dir(), name)
	if err := node.Remove(ctx, dir); err != nil { // of a start that was broken off
		return nil, err
	}
	conf, err := c.config(number, dir)
	if err != nil {
		return nil, err
	}
	for _, dir := range []string{filepath.Join(conf.EtcDir(), "kubernetes"), conf.LibDir()} {
		if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // as in any system; keys in it are private files
			return nil, fmt.Errorf("making a node's files: %w", err)
		}
	}
	a, err := c.authorities()
	if err != nil {
		return nil, err
	}
	keys := filepath.Join(conf.EtcDir(), "kubernetes", "pki")
	at := conf.Address.Addr()
	if number == 1 {
		if err := a.writeControlCerts(keys, at, c.place.network.Service(c.place.number, 1)); err != nil {
			return nil, err
		}
	}
	if err := a.writeNodeCerts(keys, name, at); err != nil {
		return nil, err
	}
	for file, who := range kubeconfigs(number) {
		if err := a.writeKubeconfig(filepath.Join(conf.EtcDir(), "kubernetes", file), c.place.server(), c.place.name, who); err != nil {
			return nil, err
		}
	}
	if err := writeNodeFiles(conf, c.place.values(number)); err != nil {
		return nil, err
	}
	if number == 1 {
		if err := giveAway(conf, c.place.controlUser()); err != nil {
			return nil, err
		}
	}
	n, err := node.Launch(ctx, c.program, conf, c.sw)
	if err != nil {
		return nil, err
	}
	c.step("node %s runs at %s", name, at)
	return n, c.route(ctx, n, number)
}

// giveAway makes the control plane's user the owner of what it reads and writes.
func giveAway(c node.Config, user uint32) error {
	etcd := filepath.Join(c.LibDir(), "etcd")
	if err := os.MkdirAll(etcd, 0o700); err != nil {
		return fmt.Errorf("making etcd's directory: %w", err)
	}
	for _, root := range []string{etcd, filepath.Join(c.EtcDir(), "kubernetes")} {
		err := filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
			return errors.Join(err, os.Lchown(path, int(user), int(user))) //nolint:gosec // nobody else writes there, and links are not followed
		})
		if err != nil {
			return fmt.Errorf("giving the control plane its files: %w", err)
		}
	}
	return nil
}

// kubeconfigs says who has a file on a node.
func kubeconfigs(number int) map[string]pki.Who {
	out := map[string]pki.Who{
		"kubelet.kubeconfig":    {User: "system:node:" + nodeName(number), Group: "system:nodes"},
		"kube-proxy.kubeconfig": {User: "system:kube-proxy"},
	}
	if number == 1 {
		out["controller.kubeconfig"] = pki.Who{User: "system:kube-controller-manager"}
		out["scheduler.kubeconfig"] = pki.Who{User: "system:kube-scheduler"}
	}
	return out
}

func (c *Cluster) config(number int, dir string) (node.Config, error) {
	p := c.place
	links := map[string]string{}
	from, err := pluginDir()
	if err != nil {
		return node.Config{}, err
	}
	for _, name := range plugins {
		links["/opt/cni/bin/"+name] = filepath.Join(from, name)
	}
	containerd, err := lookPath("containerd")
	if err != nil {
		return node.Config{}, err
	}
	conf := node.Config{
		Host:       nodeName(number),
		Dir:        dir,
		Kube:       c.opts.Kube,
		Group:      fmt.Sprintf("%s-%s-%s", c.sw.Link, p.name, nodeName(number)),
		Address:    p.network.NodePrefix(p.number, number),
		Services:   p.network.Services(p.number),
		Links:      links,
		Components: workerParts(p, number, containerd),
	}
	if p.six {
		conf.Address6, conf.Services6 = p.network.Node6(p.number, number), p.network.Services6(p.number)
	}
	if number == 1 {
		etcd, err := lookPath("etcd")
		if err != nil {
			return node.Config{}, err
		}
		control := controlParts(p, etcd)
		for i := range control {
			control[i].User = p.controlUser()
		}
		conf.Components = append(control, conf.Components...)
	}
	return conf, nil
}

// settle starts what doesn't run of the node, and waits until all does.
func (c *Cluster) settle(ctx context.Context, number int) error {
	n := c.Node(nodeName(number))
	if n == nil {
		var err error
		if n, err = c.launch(ctx, number); err != nil {
			return err
		}
		c.nodes = append(c.nodes, n)
	}
	states, err := n.States(ctx)
	if err != nil {
		return err
	}
	if err := n.Start(ctx, Containerd); err != nil {
		return err
	}
	images := make(chan error, 1)
	if states[Kubelet].Running { // which it does once they are loaded
		images <- nil
	} else {
		go func() { images <- c.loadOwn(ctx, n) }()
	}
	if number == 1 {
		if err := c.control(ctx, n); err != nil {
			return err
		}
	}
	if err := <-images; err != nil {
		return err
	}
	if err := n.Start(ctx, Kubelet, KubeProxy); err != nil {
		return err
	}
	err = eventually(ctx, limit, "node "+n.Host, func(ctx context.Context) error { return c.api.nodeReady(ctx, n.Host) })
	if err != nil {
		return err
	}
	c.step("node %s is ready", n.Host)
	if number > 1 {
		return nil
	}
	err = eventually(ctx, limit, "the default service account", func(ctx context.Context) error {
		return c.api.exists(ctx, "/api/v1/namespaces/default/serviceaccounts/default")
	})
	if err != nil {
		return err
	}
	err = eventually(ctx, limit, "cluster DNS", func(ctx context.Context) error {
		return c.api.deploymentReady(ctx, "kube-system", "coredns")
	})
	if err != nil {
		return err
	}
	c.step("cluster DNS is ready")
	return nil
}

// control starts the control plane, and makes the objects of cluster DNS.
func (c *Cluster) control(ctx context.Context, n *node.Node) error {
	if err := n.Start(ctx, Etcd, APIServer); err != nil {
		return err
	}
	if err := eventually(ctx, limit, "the API server", c.api.ready); err != nil {
		return err
	}
	c.step("the API server is ready")
	// Not before: both end at once if the rules of RBAC are not there yet.
	if err := n.Start(ctx, Controller, Scheduler); err != nil {
		return err
	}
	objects, err := render("coredns.yaml", c.place.values(1))
	if err != nil {
		return err
	}
	return c.api.apply(ctx, objects)
}

func (c *Cluster) loadOwn(ctx context.Context, n *node.Node) error {
	tars, err := writeOwnImages(filepath.Join(c.dir(), "images"), c.program, c.opts.Kube)
	if err != nil {
		return err
	}
	err = eventually(ctx, limit, "containerd", func(ctx context.Context) error {
		if !n.Listens(ctx, containerdSocket) {
			return fmt.Errorf("containerd does not listen; its log is %s", n.LogFile(Containerd))
		}
		return nil
	})
	if err != nil {
		return err
	}
	return load(ctx, n, tars)
}

// route makes the new node's pods known to the machine and to every other node
// of every cluster in the state directory, and theirs to it: one flat network.
func (c *Cluster) route(ctx context.Context, n *node.Node, number int) error {
	own := ways(c.place, n, number)
	for _, w := range own {
		if err := c.sw.Route(ctx, w.to, w.via); err != nil {
			return err
		}
	}
	all, err := records(c.opts.Dir)
	if err != nil {
		return err
	}
	for name, r := range all {
		others, err := nodesOf(c.opts.Dir, name)
		if err != nil {
			return err
		}
		for _, other := range others {
			var m int
			if _, err := fmt.Sscanf(other.Host, "n%d", &m); err != nil || other.Address == n.Address {
				continue
			}
			theirs := ways(place{name, r.Number, c.sw.Range, r.IPv6}, other, m)
			if err := errors.Join(tell(ctx, other, own), tell(ctx, n, theirs)); err != nil {
				return err
			}
		}
	}
	return nil
}

// way is a route to a node's pods.
type way struct {
	to  netip.Prefix
	via netip.Addr
}

func ways(p place, n *node.Node, number int) []way {
	out := []way{{p.network.Pods(p.number, number), n.Address.Addr()}}
	if n.Address6.IsValid() {
		out = append(out, way{p.network.Pods6(p.number, number), n.Address6.Addr()})
	}
	return out
}

// tell leaves out what the node has no address for.
func tell(ctx context.Context, n *node.Node, all []way) error {
	for _, w := range all {
		if w.via.Is6() && !n.Address6.IsValid() {
			continue
		}
		if err := n.Route(ctx, w.to, w.via); err != nil {
			return err
		}
	}
	return nil
}
