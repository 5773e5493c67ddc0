package cluster

import (
	"embed"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"text/template"

	"github.com/weftmesh/weft/e2e/internal/node"
)

//go:embed files
var fileSystem embed.FS

var templates = template.Must(template.ParseFS(fileSystem, "files/*"))

// values are what the templates of files/ may name.
type values struct {
	Node           string
	PKI            string
	DNS            string
	AllPods, Pods  string
	Pods6          string // empty without IPv6
	Pause, CoreDNS string
	Socket         string
	KubeConfigs    string
}

func (p place) values(number int) values {
	return values{
		Node:        nodeName(number),
		PKI:         pkiDir,
		DNS:         p.network.Service(p.number, 10).String(),
		AllPods:     p.allPods(),
		Pods:        p.network.Pods(p.number, number).String(),
		Pods6:       p.pods6(number),
		Pause:       pauseImage,
		CoreDNS:     coreDNSImage,
		Socket:      containerdSocket,
		KubeConfigs: kubeEtc,
	}
}

// nodeFiles says where each template's result is, in the node's /etc.
var nodeFiles = map[string]string{
	"containerd.toml":  "containerd/config.toml",
	"kubelet.yaml":     "kubernetes/kubelet.yaml",
	"kube-proxy.yaml":  "kubernetes/kube-proxy.yaml",
	"network.conflist": "cni/net.d/10-weft-test.conflist",
	"resolv.conf":      "kubernetes/resolv.conf",
}

// render fills in a template of files/.
func render(name string, v values) (string, error) {
	var out strings.Builder
	if err := templates.ExecuteTemplate(&out, name, v); err != nil {
		return "", fmt.Errorf("rendering %s: %w", name, err)
	}
	return out.String(), nil
}

func writeNodeFiles(c node.Config, v values) error {
	for name, to := range nodeFiles {
		text, err := render(name, v)
		if err != nil {
			return err
		}
		file := filepath.Join(c.EtcDir(), to)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil { //nolint:gosec // as in any system
			return fmt.Errorf("making a node's files: %w", err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil { //nolint:gosec // no secret
			return fmt.Errorf("making a node's files: %w", err)
		}
	}
	return nil
}
