package cases

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/weftmesh/weft/e2e/internal/caseset"
)

// world is the directory of manifests that stands for a cluster's API server.
type world struct {
	dir     string
	objects map[string]map[string]any // by file name
	made    int
	// others are the clusters beside this one, and links what links them.
	others map[string]*world
	links  *links
}

func newWorld(t *testing.T) *world {
	t.Helper()
	return &world{
		dir: t.TempDir(), objects: map[string]map[string]any{}, others: map[string]*world{},
		links: &links{dir: t.TempDir(), linked: map[string]linked{}},
	}
}

var uidRef = regexp.MustCompile(`"@uid:([A-Za-z]+)/([^"]+)"`)

// create writes an object, with a UID and a creation time as an API server would.
func (w *world) create(raw json.RawMessage) error {
	raw = uidRef.ReplaceAllFunc(raw, func(ref []byte) []byte {
		parts := uidRef.FindSubmatch(ref)
		return fmt.Appendf(nil, "%q", w.uid(string(parts[1]), string(parts[2])))
	})
	var object map[string]any
	if err := json.Unmarshal(raw, &object); err != nil {
		return fmt.Errorf("reading an object: %w", err)
	}
	meta, ok := object["metadata"].(map[string]any)
	if !ok {
		return fmt.Errorf("object without metadata: %s", raw)
	}
	file := fileOf(fmt.Sprint(object["kind"]), groupOf(object), text(meta["namespace"]), text(meta["name"]))
	if old := w.objects[file]; old != nil {
		before, _ := old["metadata"].(map[string]any)
		meta["uid"], meta["creationTimestamp"] = before["uid"], before["creationTimestamp"]
		if object["status"] == nil && old["status"] != nil {
			object["status"] = old["status"]
		}
	}
	if meta["uid"] == nil {
		w.made++
		meta["uid"] = fmt.Sprintf("00000000-0000-4000-8000-%012d", w.made)
	}
	if meta["creationTimestamp"] == nil {
		meta["creationTimestamp"] = time.Now().UTC().Format(time.RFC3339)
	}
	w.objects[file] = object
	if object["kind"] == "Secret" {
		return w.links.apply(object)
	}
	return w.write(file)
}

func (w *world) uid(kind, name string) string {
	for _, o := range w.objects {
		meta, _ := o["metadata"].(map[string]any)
		if o["kind"] == kind && meta["name"] == name {
			return text(meta["uid"])
		}
	}
	return "11111111-1111-4111-8111-111111111111" // an owner that the case never creates
}

// do makes one change: create, apply, patch, delete or sleep.
func (w *world) do(s caseset.Step) error {
	if s.Cluster != "" {
		other := w.others[s.Cluster]
		if other == nil {
			return fmt.Errorf("no cluster is called %s", s.Cluster)
		}
		s.Cluster = ""
		return other.do(s)
	}
	switch s.Op {
	case "create", "apply":
		return w.create(s.Object)
	case "sleep":
		<-time.After(time.Duration(s.Second * float64(time.Second)))
		return nil
	case "patch":
		file, err := w.find(s.Ref)
		if err != nil {
			return err
		}
		var merge map[string]any
		if err := json.Unmarshal(s.Merge, &merge); err != nil {
			return fmt.Errorf("reading a merge patch: %w", err)
		}
		w.objects[file] = mergePatch(w.objects[file], merge)
		if w.objects[file]["kind"] == "Secret" {
			return w.links.apply(w.objects[file])
		}
		return w.write(file)
	case "delete":
		file, err := w.find(s.Ref)
		if err != nil {
			return err
		}
		object := w.objects[file]
		delete(w.objects, file)
		if object["kind"] == "Secret" {
			return w.links.remove(object)
		}
		return os.Remove(filepath.Join(w.dir, file))
	}
	return fmt.Errorf("unknown step %q", s.Op)
}

// find resolves Kind[.group]/namespace/name, or Kind/name.
func (w *world) find(ref string) (string, error) {
	kind, rest, _ := strings.Cut(ref, "/")
	kind, group, hasGroup := strings.Cut(kind, ".")
	for file, o := range w.objects {
		meta, _ := o["metadata"].(map[string]any)
		name := text(meta["name"])
		if ns := text(meta["namespace"]); ns != "" {
			name = ns + "/" + name
		}
		if o["kind"] == kind && name == rest && (!hasGroup || groupOf(o) == group) {
			return file, nil
		}
	}
	return "", fmt.Errorf("no object is called %s", ref)
}

func (w *world) write(file string) error {
	body, err := json.MarshalIndent(w.objects[file], "", "  ")
	if err != nil {
		return fmt.Errorf("writing %s: %w", file, err)
	}
	tmp := filepath.Join(w.dir, "."+strings.TrimSuffix(file, ".yaml")+".tmp")
	if err := os.WriteFile(tmp, body, 0o600); err != nil {
		return fmt.Errorf("writing %s: %w", file, err)
	}
	return os.Rename(tmp, filepath.Join(w.dir, file))
}

// mergePatch applies a JSON merge patch (RFC 7386).
func mergePatch(to, patch map[string]any) map[string]any {
	out := maps.Clone(to)
	if out == nil {
		out = map[string]any{}
	}
	for k, v := range patch {
		switch v := v.(type) {
		case nil:
			delete(out, k)
		case map[string]any:
			old, _ := out[k].(map[string]any)
			out[k] = mergePatch(old, v)
		default:
			out[k] = v
		}
	}
	return out
}

func fileOf(kind, group, namespace, name string) string {
	return strings.ToLower(strings.Join([]string{kind, group, namespace, name}, "_")) + ".yaml"
}

func groupOf(o map[string]any) string {
	group, _, found := strings.Cut(text(o["apiVersion"]), "/")
	if !found {
		return "core"
	}
	return group
}

func text(v any) string {
	s, _ := v.(string)
	return s
}
