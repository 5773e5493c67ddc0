package cluster

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/weftmesh/weft/e2e/internal/pki"
)

// authorities sign for one cluster.
type authorities struct{ cluster, frontProxy *pki.Authority }

func openAuthorities(dir string) (authorities, error) {
	cluster, err := pki.Open(dir, "ca")
	if err != nil {
		return authorities{}, err
	}
	front, err := pki.Open(dir, "front-proxy-ca")
	return authorities{cluster, front}, err
}

// writeControlCerts writes what the components of the control plane need.
func (a authorities) writeControlCerts(dir string, server netip.Addr, service netip.Addr) error {
	local := []string{"localhost", "127.0.0.1"}
	for name, who := range map[string]pki.Who{
		"apiserver": {User: "kube-apiserver", Names: append([]string{
			"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local",
			server.String(), service.String(),
		}, local...)},
		"apiserver-kubelet-client": {User: "kube-apiserver-kubelet-client", Group: "system:masters"},
		"controller":               {User: "system:kube-controller-manager", Names: local},
		"scheduler":                {User: "system:kube-scheduler", Names: local},
	} {
		if err := writeLeaf(a.cluster, dir, name, who); err != nil {
			return err
		}
	}
	if err := writeLeaf(a.frontProxy, dir, "front-proxy-client", pki.Who{User: "front-proxy-client"}); err != nil {
		return err
	}
	for name, authority := range map[string]*pki.Authority{"ca": a.cluster, "front-proxy-ca": a.frontProxy} {
		own, err := authority.Pair()
		if err != nil {
			return err
		}
		if err := own.Write(dir, name); err != nil {
			return err
		}
	}
	return pki.WriteSigningKey(dir, "sa")
}

func writeLeaf(a *pki.Authority, dir, name string, who pki.Who) error {
	leaf, err := a.Leaf(who)
	if err != nil {
		return err
	}
	return leaf.Write(dir, name)
}

// writeNodeCerts writes what kubelet and kube-proxy of a node need. A node that
// has no control plane gets the authority's certificate without its key.
func (a authorities) writeNodeCerts(dir, name string, at netip.Addr) error {
	own, err := a.cluster.Pair()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("making a node's certificates: %w", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "ca.crt"), own.Cert, 0o600); err != nil {
		return fmt.Errorf("making a node's certificates: %w", err)
	}
	return writeLeaf(a.cluster, dir, "kubelet", pki.Who{
		User: "system:node:" + name, Group: "system:nodes", Names: []string{name, at.String(), "127.0.0.1"},
	})
}

// writeKubeconfig makes the file for someone who is no server.
func (a authorities) writeKubeconfig(file, server, cluster string, who pki.Who) error {
	own, err := a.cluster.Pair()
	if err != nil {
		return err
	}
	leaf, err := a.cluster.Leaf(who)
	if err != nil {
		return err
	}
	return pki.WriteKubeconfig(file, server, cluster, own.Cert, leaf)
}

// administrator may do everything.
var administrator = pki.Who{User: "kubernetes-admin", Group: "system:masters"}
