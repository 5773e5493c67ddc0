package manifest

import (
	"bytes"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"

	"github.com/weftmesh/weft/services/kit/golden"
	"github.com/weftmesh/weft/services/kit/say"
	"github.com/weftmesh/weft/tools/weft/internal/kube/kubetest"
)

// run runs one of the room's commands as the tree would.
func run(t *testing.T, in string, args ...string) (out, errOut string, err error) {
	t.Helper()
	return kubetest.Play(t, in, args, InjectCommand(), UninjectCommand())
}

// TestGoldens: args and in give out, err (the report) and problem.
func TestGoldens(t *testing.T) {
	t.Setenv("LINKERD_DOCKER_REGISTRY", "")
	for _, f := range golden.Files(t, "testdata/*.txtar") {
		t.Run(f.Name, func(t *testing.T) {
			out, errOut, err := run(t, string(f.Part("in")), strings.Fields(string(f.Part("args")))...)
			var problem bytes.Buffer
			say.Print(&problem, "weft", err, say.Plain)
			f.Whole(t, []txtar.File{
				{Name: "args", Data: f.Part("args")},
				{Name: "in", Data: f.Part("in")},
				{Name: "out", Data: []byte(out)},
				{Name: "err", Data: []byte(errOut)},
				{Name: "problem", Data: problem.Bytes()},
			})
		})
	}
}
