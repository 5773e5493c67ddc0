package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/weftmesh/weft/e2e/internal/node"
)

// A state directory holds switch/, and a directory per cluster with its
// cluster.json, kubeconfig, pki/ and a directory per node.
const (
	clusterFile    = "cluster.json"
	kubeconfigFile = "kubeconfig"
	lockFile       = ".lock"
)

// record is cluster.json.
type record struct {
	Number int  `json:"number"`
	IPv6   bool `json:"ipv6"`
}

// lock keeps other programs out of the directory until the returned function is
// called, or until this program ends.
func lock(dir string) (unlock func(), err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // keys in it are private files
		return nil, fmt.Errorf("making the state directory: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(dir, lockFile), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("locking the state directory: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		return nil, errors.Join(fmt.Errorf("locking the state directory: %w", err), f.Close())
	}
	return func() { _ = f.Close() }, nil // closing is what unlocks
}

// records reads what clusters are in the directory.
func records(dir string) (map[string]record, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*", clusterFile))
	if err != nil {
		return nil, fmt.Errorf("listing clusters: %w", err)
	}
	out := map[string]record{}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("reading a cluster's record: %w", err)
		}
		var r record
		if err := json.Unmarshal(data, &r); err != nil {
			return nil, fmt.Errorf("reading %s: %w (`weft-cluster down` removes it)", file, err)
		}
		out[filepath.Base(filepath.Dir(file))] = r
	}
	return out, nil
}

// enroll returns the cluster's record. One that is new takes the first free
// number, and IPv6 if it is asked for.
func enroll(dir, name string, six bool) (record, error) {
	all, err := records(dir)
	if err != nil {
		return record{}, err
	}
	if r, ok := all[name]; ok {
		return r, nil
	}
	used := map[int]bool{}
	for _, r := range all {
		used[r.Number] = true
	}
	for n := 1; n <= node.MaxClusters; n++ {
		if used[n] {
			continue
		}
		data, err := json.Marshal(record{n, six})
		if err != nil {
			return record{}, fmt.Errorf("recording a cluster: %w", err)
		}
		if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil { //nolint:gosec // keys in it are private files
			return record{}, fmt.Errorf("recording a cluster: %w", err)
		}
		if err := os.WriteFile(filepath.Join(dir, name, clusterFile), data, 0o600); err != nil {
			return record{}, fmt.Errorf("recording a cluster: %w", err)
		}
		return record{n, six}, nil
	}
	return record{}, fmt.Errorf("%s holds %d clusters already, more have no addresses", dir, node.MaxClusters)
}

// nodesOf finds the nodes of a cluster that run, in the order of their names.
func nodesOf(dir, name string) ([]*node.Node, error) {
	entries, err := os.ReadDir(filepath.Join(dir, name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("listing nodes: %w", err)
	}
	var out []*node.Node
	for _, e := range entries {
		if n, err := node.Attach(filepath.Join(dir, name, e.Name())); err == nil {
			out = append(out, n)
		}
	}
	slices.SortFunc(out, func(a, b *node.Node) int { return strings.Compare(a.Host, b.Host) })
	return out, nil
}
