package cluster

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/weftmesh/weft/e2e/internal/image"
	"github.com/weftmesh/weft/e2e/internal/node"
)

// The images that a cluster needs for itself. Like all images of the test bed
// they are loaded, never pulled.
const (
	pauseImage   = "weft.local/pause:dev"
	coreDNSImage = "weft.local/coredns:dev"
)

// pauseWord makes weft-cluster be the process that holds a pod's namespaces.
const pauseWord = "pause"

// writeOwnImages makes the archives of the two, and returns their files.
func writeOwnImages(dir, program, kube string) ([]string, error) {
	specs := map[string]image.Spec{
		"pause.tar": {
			Name: pauseImage, Entrypoint: []string{"/" + Program, pauseWord}, User: "65534:65534",
			Files: []image.File{{Path: "/" + Program, Source: program}},
		},
		"coredns.tar": {
			Name: coreDNSImage, Entrypoint: []string{"/coredns"},
			Files: []image.File{{Path: "/coredns", Source: filepath.Join(kube, "coredns")}},
		},
	}
	var out []string
	for name, spec := range specs {
		file := filepath.Join(dir, name)
		if err := image.Write(file, spec); err != nil {
			return nil, err
		}
		out = append(out, file)
	}
	return out, nil
}

// load imports archives into a node's containerd. They go through standard
// input: the node doesn't see the machine's files.
func load(ctx context.Context, n *node.Node, tars []string) error {
	for _, tar := range tars {
		if err := loadOne(ctx, n, tar); err != nil {
			return fmt.Errorf("loading %s into node %s: %w", tar, n.Host, err)
		}
	}
	return nil
}

func loadOne(ctx context.Context, n *node.Node, tar string) error {
	f, err := os.Open(tar)
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // it is only read
	cmd := n.Command(ctx, "ctr", "--address", containerdSocket, "--namespace", "k8s.io", "images", "import", "-")
	cmd.Stdin = f
	if said, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, said)
	}
	return nil
}
