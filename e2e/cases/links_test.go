package cases

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/weftmesh/weft/e2e/internal/caseset"
)

// links is the directory in which the cluster under test finds the others. A
// Secret with the credentials of another cluster, which is how Linkerd links
// one, becomes a file that names its bus.
type links struct {
	dir, bus, cluster string // of the cluster under test
	linked            map[string]linked
}

// linked is what a Secret says of a cluster.
type linked struct{ domain, trust string }

// linkOf reads a Secret; ok is false for one that links nothing, as Linkerd
// ignores those that lack a domain.
func linkOf(secret map[string]any) (name string, l linked, ok bool) {
	meta, _ := secret["metadata"].(map[string]any)
	labels, _ := meta["labels"].(map[string]any)
	annotations, _ := meta["annotations"].(map[string]any)
	name = text(labels["multicluster.linkerd.io/cluster-name"])
	l = linked{text(annotations["multicluster.linkerd.io/cluster-domain"]), text(annotations["multicluster.linkerd.io/trust-domain"])}
	ok = secret["type"] == "mirror.linkerd.io/remote-kubeconfig" && name != "" && l.domain != "" && l.trust != ""
	return name, l, ok
}

// busName is what the bus calls another cluster of the case.
func (l *links) busName(cluster string) string { return l.cluster + "-" + cluster }

func (l *links) apply(secret map[string]any) error {
	name, is, ok := linkOf(secret)
	if !ok {
		return nil
	}
	l.linked[name] = is
	body, err := json.Marshal(map[string]any{"servers": []string{l.bus}, "cluster": l.busName(name)})
	if err != nil {
		return fmt.Errorf("writing a link: %w", err)
	}
	tmp := filepath.Join(l.dir, "."+name+".tmp")
	if err := os.WriteFile(tmp, body, 0o600); err != nil {
		return fmt.Errorf("writing a link: %w", err)
	}
	return os.Rename(tmp, filepath.Join(l.dir, name+".json"))
}

func (l *links) remove(secret map[string]any) error {
	name, _, ok := linkOf(secret)
	if !ok {
		return nil
	}
	return os.Remove(filepath.Join(l.dir, name+".json"))
}

// watcher are the settings of another cluster's watcher: its log says whose it is.
func (l *links) watcher(cluster string, w *world) []string {
	args := []string{"-bus.servers", l.bus, "-bus.cluster", l.busName(cluster), "-source", "dir", "-derive=false", "-dir", w.dir}
	if is, ok := l.linked[cluster]; ok {
		args = append(args, "-cluster-domain", is.domain, "-identity-trust-domain", is.trust)
	}
	return args
}

// quietOnly reports whether nothing may come.
func quietOnly(messages []caseset.Message) bool {
	for _, m := range messages {
		if _, quiet := m["quiet_ms"]; !quiet {
			return false
		}
	}
	return len(messages) > 0
}
