package cluster

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Kubectl replaces this program by kubectl for the cluster. It returns only an
// error.
func Kubectl(o Options, args []string) error {
	file, err := KubeconfigFile(o)
	if err != nil {
		return err
	}
	o, err = o.fill()
	if err != nil {
		return err
	}
	env := append(os.Environ(), "KUBECONFIG="+file)
	if err := unix.Exec(filepath.Join(o.Kube, "hyperkube"), append([]string{"kubectl"}, args...), env); err != nil {
		return fmt.Errorf("running kubectl out of hyperkube: %w", err)
	}
	return nil
}

// KubeconfigFile is where the cluster's file is, if there is such a cluster.
func KubeconfigFile(o Options) (string, error) {
	o, err := o.fill()
	if err != nil {
		return "", err
	}
	file := filepath.Join(o.Dir, o.Name, kubeconfigFile)
	if _, err := os.Stat(file); err != nil {
		return "", fmt.Errorf("no cluster %s in %s (start it with weft-cluster up): %w", o.Name, o.Dir, err)
	}
	return file, nil
}
