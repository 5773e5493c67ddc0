package manifest

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"golang.org/x/tools/txtar"

	"github.com/weftmesh/weft/services/kit/say"
	"github.com/weftmesh/weft/tools/weft/internal/kube"
)

var update = flag.Bool("update", false, "write what came out into testdata")

// run runs one of the room's commands as the tree would.
func run(t *testing.T, in string, args ...string) (out, errOut string, err error) {
	t.Helper()
	root := &cobra.Command{Use: "weft", SilenceErrors: true, SilenceUsage: true}
	new(kube.Flags).Bind(root.PersistentFlags())
	root.PersistentFlags().Bool("verbose", false, "")
	root.AddCommand(InjectCommand(), UninjectCommand())
	var o, e bytes.Buffer
	root.SetOut(&o)
	root.SetErr(&e)
	root.SetIn(strings.NewReader(in))
	root.SetArgs(args)
	err = root.ExecuteContext(t.Context())
	return o.String(), e.String(), err
}

// TestGoldens: args and in give out, err (the report) and problem.
func TestGoldens(t *testing.T) {
	t.Setenv("LINKERD_DOCKER_REGISTRY", "")
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatal("no goldens", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			ar, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			parts := make(map[string]string)
			for _, f := range ar.Files {
				parts[f.Name] = string(f.Data)
			}
			out, errOut, err := run(t, parts["in"], strings.Fields(parts["args"])...)
			var problem bytes.Buffer
			say.Print(&problem, "weft", err, say.Plain)
			got := []txtar.File{
				{Name: "args", Data: []byte(parts["args"])},
				{Name: "in", Data: []byte(parts["in"])},
				{Name: "out", Data: []byte(out)},
				{Name: "err", Data: []byte(errOut)},
				{Name: "problem", Data: problem.Bytes()},
			}
			whole := txtar.Format(&txtar.Archive{Comment: ar.Comment, Files: got})
			if *update {
				if err := os.WriteFile(file, whole, 0o600); err != nil {
					t.Fatal(err)
				}
				return
			}
			if diff := cmp.Diff(string(txtar.Format(ar)), string(whole)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
