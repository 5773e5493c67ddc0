package shape_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weftmesh/weft/bus"
	"github.com/weftmesh/weft/services/kit/golden"
	"github.com/weftmesh/weft/services/watcher/internal/dir"
	"github.com/weftmesh/weft/services/watcher/internal/shape"
)

// goldens runs every txtar of a directory: the objects are in in.yaml, what they
// must become in want.
func goldens(t *testing.T, directory string, run func(items []dir.Item) string) {
	t.Helper()
	for _, f := range golden.Files(t, filepath.Join("testdata", directory, "*.txtar")) {
		t.Run(f.Name, func(t *testing.T) {
			parsed := dir.Parse(f.Part("in.yaml"))
			if parsed.Broken != nil || len(parsed.Strays) > 0 {
				t.Fatalf("input: %v %v", parsed.Broken, parsed.Strays)
			}
			f.Want(t, run(parsed.Items))
		})
	}
}

func lookup(items []dir.Item) shape.Lookup {
	return func(id shape.ID) metav1.Object {
		for _, it := range items {
			if it.ID == id {
				return it.Obj
			}
		}
		return nil
	}
}

// show writes rows one a line; protojson's own spacing is random on purpose.
func show(b *strings.Builder, rows []shape.Row) {
	for _, r := range rows {
		raw, err := protojson.Marshal(r.Message)
		if err != nil {
			fmt.Fprintf(b, "%v\n", err)
			continue
		}
		var line bytes.Buffer
		if err := json.Compact(&line, raw); err != nil {
			fmt.Fprintf(b, "%v\n", err)
		}
		info, _ := bus.Info(r.Table)
		fmt.Fprintf(b, "%s %s\n  %s\n", info.Name, r.Key, line.String())
	}
}

func TestRows(t *testing.T) {
	goldens(t, "rows", func(items []dir.Item) string {
		var b strings.Builder
		for _, it := range items {
			rows, partly, wrong := shape.Rows(it.ID.Kind, it.Obj, lookup(items))
			show(&b, rows)
			if partly != nil {
				fmt.Fprintf(&b, "part %v\n", partly)
			}
			if wrong != nil {
				fmt.Fprintf(&b, "skip %v\n", wrong)
			}
		}
		return b.String()
	})
}

func TestDerive(t *testing.T) {
	goldens(t, "derive", func(items []dir.Item) string {
		var pods []*corev1.Pod
		var externals []*shape.ExternalWorkload
		var services []*corev1.Service
		for _, it := range items {
			switch o := it.Obj.(type) {
			case *corev1.Pod:
				pods = append(pods, o)
			case *shape.ExternalWorkload:
				externals = append(externals, o)
			case *corev1.Service:
				services = append(services, o)
			}
		}
		find := lookup(items)
		zone := func(node string) string {
			if n := find(shape.ID{Kind: shape.Node, Name: node}); n != nil {
				return shape.Zone(n.GetLabels())
			}
			return ""
		}
		var b strings.Builder
		for _, s := range services {
			show(&b, shape.Derive(s, pods, externals, zone))
		}
		return b.String()
	})
}
