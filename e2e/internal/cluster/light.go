package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"github.com/weftmesh/weft/e2e/internal/pki"
	"github.com/weftmesh/weft/services/kit/say"
)

// Control is a control plane without nodes, on loopback: an API server that
// tests of watches and admission talk to. It ends with the program that started
// it, however that ends.
type Control struct {
	dir   string
	temp  bool // Down removes the directory
	group *group
}

// lightServices is a range that nothing serves.
var lightServices = netip.MustParsePrefix("10.255.0.0/16")

// lightTries is how often ports are chosen anew because someone took one first.
const lightTries = 3

// Light starts etcd and kube-apiserver, and kube-controller-manager if Controllers
// is set, and returns when the API server is ready. It needs neither root nor
// control groups. Options.Dir empty means a temporary directory. Pods can be
// created but are never run; without Controllers they need no service account.
func Light(ctx context.Context, o Options) (*Control, error) {
	kube, err := below(o.Kube, "kube")
	if err != nil {
		return nil, err
	}
	if err := MissingLight(o); err != nil {
		return nil, err
	}
	c := &Control{dir: o.Dir}
	if o.Dir == "" {
		if c.dir, err = os.MkdirTemp("", "weft-light-"); err != nil {
			return nil, fmt.Errorf("making a directory for the control plane: %w", err)
		}
		c.temp = true
	}
	if c.dir, err = filepath.Abs(c.dir); err != nil {
		return nil, fmt.Errorf("finding %s: %w", o.Dir, err)
	}
	var errs []error
	for range lightTries {
		err := c.start(ctx, kube, o)
		if err == nil {
			return c, nil
		}
		c.group.end()
		if errs = append(errs, err); ctx.Err() != nil {
			break
		}
	}
	return nil, errors.Join(append(errs, c.Down())...)
}

// MissingLight says in a say.Problem what this machine lacks for Light; nil means
// nothing.
func MissingLight(o Options) error {
	kube, err := below(o.Kube, "kube")
	if err != nil {
		return err
	}
	if _, err := lookPath("etcd"); err != nil {
		return &say.Problem{What: "an API server can't be started here", Why: "this machine lacks etcd (package etcd-server)", Next: "make host"}
	}
	return missingBinaries(kube, "hyperkube")
}

// Kubeconfig is the administrator's file.
func (c *Control) Kubeconfig() string { return filepath.Join(c.dir, kubeconfigFile) }

// Down ends the control plane and removes what it wrote.
func (c *Control) Down() error {
	c.group.end()
	if c.temp {
		if err := os.RemoveAll(c.dir); err != nil {
			return fmt.Errorf("removing the control plane's directory: %w", err)
		}
	}
	return nil
}

func (c *Control) start(ctx context.Context, kube string, o Options) error {
	c.group = newGroup(c.dir)
	ports, err := freePorts(ctx, 4)
	if err != nil {
		return err
	}
	server, etcd, peer, controller := ports[0], ports[1], ports[2], ports[3]
	keys := certs(filepath.Join(c.dir, "pki"))
	client, kubeconfig, err := c.keys(keys, "https://"+loopback(server))
	if err != nil {
		return err
	}
	if err := c.startEtcd("http://"+loopback(etcd), "http://"+loopback(peer)); err != nil {
		return err
	}
	args := append(apiArgs(keys, "http://"+loopback(etcd), lightServices.String()),
		"--bind-address=127.0.0.1", "--advertise-address=127.0.0.1",
		"--secure-port="+fmt.Sprint(server),
		"--endpoint-reconciler-type=none", // loopback is no endpoint
		"--authorization-mode=RBAC",
	)
	if !o.Controllers {
		args = append(args, "--disable-admission-plugins=ServiceAccount") // nobody makes service accounts
	}
	hyperkube := filepath.Join(kube, "hyperkube")
	if err := c.group.start(APIServer, hyperkube, args...); err != nil {
		return err
	}
	if err := c.await(ctx, "the API server", client.ready); err != nil || !o.Controllers {
		return err
	}
	args = append(controllerArgs(keys, kubeconfig), "--secure-port="+fmt.Sprint(controller))
	if err := c.group.start(Controller, hyperkube, args...); err != nil {
		return err
	}
	return c.await(ctx, "the default service account", func(ctx context.Context) error {
		return client.exists(ctx, "/api/v1/namespaces/default/serviceaccounts/default")
	})
}

func loopback(port uint16) string {
	return netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), port).String()
}

// keys makes the certificates, and kubeconfig files for the administrator and
// for the controllers, whose is returned.
func (c *Control) keys(dir certs, server string) (*api, string, error) {
	a, err := openAuthorities(string(dir))
	if err != nil {
		return nil, "", err
	}
	at := netip.MustParseAddr("127.0.0.1")
	if err := a.writeControlCerts(string(dir), at, lightServices.Addr().Next()); err != nil {
		return nil, "", err
	}
	controller := filepath.Join(c.dir, "controller.kubeconfig")
	for file, who := range map[string]pki.Who{
		c.Kubeconfig(): administrator,
		controller:     {User: "system:kube-controller-manager"},
	} {
		if err := a.writeKubeconfig(file, server, "light", who); err != nil {
			return nil, "", err
		}
	}
	admin, err := a.cluster.Leaf(administrator)
	if err != nil {
		return nil, "", err
	}
	client, err := newAPI(server, a.cluster, admin)
	return client, controller, err
}

func (c *Control) startEtcd(clients, peers string) error {
	etcd, err := lookPath("etcd")
	if err != nil {
		return err
	}
	data := filepath.Join(c.dir, "etcd")
	if err := os.RemoveAll(data); err != nil { // of a try that failed
		return fmt.Errorf("clearing etcd's directory: %w", err)
	}
	return c.group.start(Etcd, etcd, etcdArgs(data, clients, peers)...)
}

// await waits for the answer, or for the end of a process that should run.
func (c *Control) await(ctx context.Context, what string, ask func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := make(chan struct{})
	defer close(stop)
	go func() {
		select {
		case err := <-c.group.failed:
			cancel(err)
		case <-stop:
		}
	}()
	return eventually(ctx, limit, what, ask)
}

// freePorts are free now; someone else may take them before they are used.
func freePorts(ctx context.Context, n int) ([]uint16, error) {
	var out []uint16
	for range n {
		l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
		if err != nil {
			return nil, fmt.Errorf("finding a free port: %w", err)
		}
		defer l.Close() // open until all are found, so that they differ
		at, err := netip.ParseAddrPort(l.Addr().String())
		if err != nil {
			return nil, fmt.Errorf("finding a free port: %w", err)
		}
		out = append(out, at.Port())
	}
	return out, nil
}

// lightGrace is how long the processes have to end before they are killed.
const lightGrace = 5 * time.Second
