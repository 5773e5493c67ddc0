package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/weftmesh/weft/e2e/internal/node"
	"github.com/weftmesh/weft/e2e/internal/repo"
	"github.com/weftmesh/weft/services/kit/say"
)

// Options say what to start. The zero value is one cluster with one node, in
// the repository's .bin.
type Options struct {
	// Dir is where everything is kept; clusters in one Dir share a network.
	// Empty means .bin/cluster of the repository.
	Dir string
	// Kube holds hyperkube and coredns, as `make clusterbins` builds them.
	// Empty means .bin/kube of the repository.
	Kube string
	// Name is the cluster's; empty means DefaultName.
	Name string
	// Nodes is how many the cluster shall have; 0 means 1.
	Nodes int
	// IPv6 gives a new cluster addresses of both families, IPv4 first. A pod then
	// takes a second longer to start, until the kernel trusts its address.
	IPv6 bool
	// Controllers runs kube-controller-manager beside the API server of Light,
	// which makes service accounts, garbage collection and quotas work.
	Controllers bool
	// Progress is told of each step that is done; nil means nobody wants to know.
	Progress func(step string)
}

// DefaultName is the name of a cluster that was given none.
const DefaultName = "c1"

// socketRoom is what a socket's path below Dir may take of the 107 bytes that
// the kernel allows.
const socketRoom = 107 - len("/123456789012/n1/node.sock")

var nameForm = regexp.MustCompile(`^[a-z][a-z0-9-]{0,11}$`)

// fill sets the defaults and checks the rest.
func (o Options) fill() (Options, error) {
	if o.Name == "" {
		o.Name = DefaultName
	}
	if !nameForm.MatchString(o.Name) || o.Name == node.SwitchName {
		return o, fmt.Errorf("%q is no name for a cluster: up to 12 lower-case letters, digits and hyphens, and not %q", o.Name, node.SwitchName)
	}
	if o.Nodes == 0 {
		o.Nodes = 1
	}
	if o.Nodes < 0 || o.Nodes > node.MaxNodes {
		return o, fmt.Errorf("a cluster has 1 to %d nodes, not %d", node.MaxNodes, o.Nodes)
	}
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
	var err error
	if o.Dir, err = below(o.Dir, "cluster"); err != nil {
		return o, err
	}
	if len(o.Dir) > socketRoom {
		return o, fmt.Errorf("the state directory's path has %d bytes, more than %d: a socket below it could have no name", len(o.Dir), socketRoom)
	}
	o.Kube, err = below(o.Kube, "kube")
	return o, err
}

// below makes a path absolute; an empty one is in the repository's .bin.
func below(dir, name string) (string, error) {
	if dir == "" {
		// `make binaries` puts the program into .bin, from where it works anywhere.
		if self, err := os.Executable(); err == nil && filepath.Base(filepath.Dir(self)) == ".bin" {
			return filepath.Join(filepath.Dir(self), name), nil
		}
		root, err := repo.Root()
		if err != nil {
			return "", fmt.Errorf("%w (give -dir and -kube)", err)
		}
		return filepath.Join(root, ".bin", name), nil
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", fmt.Errorf("finding %s: %w", dir, err)
	}
	return dir, nil
}

// programs are the commands of the machine that a cluster needs, and the Debian
// packages they are in.
var programs = []struct{ name, from string }{
	{"containerd", "containerd"},
	{"ctr", "containerd"},
	{"runc", "runc"},
	{"etcd", "etcd-server"},
	{"nft", "nftables"},
	{"iptables", "iptables"},
	{"ip", "iproute2"},
	{"conntrack", "conntrack"},
	{"nsenter", "util-linux"},
}

// plugins are the network plugins that a node needs.
var plugins = []string{"ptp", "host-local", "loopback", "portmap"}

// pluginDirs is where distributions put them; Debian's is the first.
var pluginDirs = []string{"/usr/lib/cni", "/usr/libexec/cni"}

// Missing says in a say.Problem what this machine lacks for a cluster; nil means
// nothing.
func Missing(o Options) error {
	o, err := o.fill()
	if err != nil {
		return err
	}
	if os.Geteuid() != 0 {
		return &say.Problem{
			What: "a cluster can't be started here",
			Why:  "it needs root, for namespaces and control groups",
			Next: "run it as root, or name a cluster by KUBECONFIG",
		}
	}
	var lacks []string
	for _, p := range programs {
		if _, err := lookPath(p.name); err != nil {
			lacks = append(lacks, p.name+" (package "+p.from+")")
		}
	}
	if _, err := pluginDir(); err != nil {
		lacks = append(lacks, "network plugins (package containernetworking-plugins)")
	}
	if len(lacks) > 0 {
		return &say.Problem{
			What: "a cluster can't be started here",
			Why:  "this machine lacks " + strings.Join(lacks, ", "),
			Next: "make host",
		}
	}
	if err := missingBinaries(o.Kube, "hyperkube", "coredns"); err != nil {
		return err
	}
	return node.Possible(o.Dir)
}

func missingBinaries(kube string, names ...string) error {
	for _, name := range names {
		if _, err := os.Stat(filepath.Join(kube, name)); err != nil {
			return &say.Problem{
				What: "a cluster can't be started here",
				Why:  "Kubernetes is not built: " + filepath.Join(kube, name) + " is missing",
				Next: "make clusterbins (about ten minutes, once)",
				Err:  err,
			}
		}
	}
	return nil
}

// lookPath also looks where root's PATH may not: daemons are in sbin.
func lookPath(name string) (string, error) {
	if path, err := exec.LookPath(name); err == nil {
		return path, nil
	}
	for _, dir := range []string{"/usr/sbin", "/sbin", "/usr/local/sbin"} {
		if path, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("%s is not installed", name)
}

func pluginDir() (string, error) {
	for _, dir := range pluginDirs {
		if _, err := os.Stat(filepath.Join(dir, plugins[0])); err == nil {
			return dir, nil
		}
	}
	return "", errors.New("no network plugins in " + strings.Join(pluginDirs, ", "))
}

// programPath is the weft-cluster binary that nodes are started from: this
// program itself, or one that is built from this tree.
func programPath(ctx context.Context, dir string) (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("finding this program: %w", err)
	}
	if filepath.Base(self) == Program {
		return self, nil
	}
	root, err := repo.Root()
	if err != nil {
		return "", err
	}
	out := filepath.Join(dir, programDir, Program)
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-o", out, "./cmd/"+Program) //nolint:gosec // builds our own source
	cmd.Dir = filepath.Join(root, "e2e")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=")
	if said, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building %s: %w: %s", Program, err, said)
	}
	return out, nil
}

// programDir holds a program that was built for a state directory.
const programDir = ".program"

// Program is the command that a node's processes are started from.
const Program = "weft-cluster"
