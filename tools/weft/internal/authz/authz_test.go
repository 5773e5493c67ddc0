package authz

import (
	"bytes"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"golang.org/x/tools/txtar"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/weftmesh/weft/services/kit/say"
	"github.com/weftmesh/weft/tools/weft/internal/kube"
	"github.com/weftmesh/weft/tools/weft/internal/kube/kubetest"
	"github.com/weftmesh/weft/tools/weft/internal/manifest"
	"github.com/weftmesh/weft/tools/weft/internal/usage"
)

var update = flag.Bool("update", false, "write what is printed now as what is wanted")

func run(t *testing.T, args ...string) (string, error) {
	t.Helper()
	root := &cobra.Command{Use: "weft", SilenceErrors: true, SilenceUsage: true}
	new(kube.Flags).Bind(root.PersistentFlags())
	root.AddCommand(Command())
	var out bytes.Buffer
	root.SetOut(&out)
	root.SetErr(&out)
	root.SetArgs(append([]string{"authz"}, args...))
	err := root.ExecuteContext(t.Context())
	return out.String(), err
}

// Each file holds the objects of a cluster, command lines, and what they print.
func TestGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatal("no cases", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			a, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			part := map[string]string{}
			for _, f := range a.Files {
				part[f.Name] = string(f.Data)
			}
			s := kubetest.Start(t, "")
			for line := range strings.Lines(part["kinds"]) {
				gv, kind, _ := strings.Cut(strings.TrimSpace(line), " ")
				s.Serve(gv, kind, true)
			}
			docs, err := manifest.Parse(file, []byte(part["cluster"]))
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range docs {
				s.Put(&unstructured.Unstructured{Object: d.Object})
			}
			var b strings.Builder
			for line := range strings.Lines(part["args"]) {
				b.WriteString("$ authz " + line)
				got, err := run(t, append([]string{"--kubeconfig", s.Kubeconfig}, strings.Fields(line)...)...)
				b.WriteString(got)
				if p, ok := errors.AsType[*say.Problem](err); ok {
					b.WriteString(p.What + "\n")
				} else if err != nil {
					t.Fatal(err)
				}
			}
			if *update {
				for i := range a.Files {
					if a.Files[i].Name == "want" {
						a.Files[i].Data = []byte(b.String())
					}
				}
				if err := os.WriteFile(file, txtar.Format(a), 0o600); err != nil {
					t.Fatal(err)
				}
				return
			}
			if diff := cmp.Diff(part["want"], b.String()); diff != "" {
				t.Errorf("(-want +got; -update accepts it)\n%s", diff)
			}
		})
	}
}

func TestCommandLinesThatMakeNoSense(t *testing.T) {
	s := kubetest.Start(t, "")
	for _, args := range [][]string{{}, {"deploy/web", "more"}, {"web"}, {"configmap/web"}} {
		_, err := run(t, append([]string{"--kubeconfig", s.Kubeconfig}, args...)...)
		if p, ok := errors.AsType[*say.Problem](err); !ok || p.Exit() != usage.Exit {
			t.Errorf("authz %v = %v, want exit code %d", args, err, usage.Exit)
		}
	}
}
