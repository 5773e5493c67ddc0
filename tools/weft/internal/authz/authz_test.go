package authz

import (
	"errors"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/weftmesh/weft/services/kit/golden"
	"github.com/weftmesh/weft/services/kit/say"
	"github.com/weftmesh/weft/tools/weft/internal/kube/kubetest"
	"github.com/weftmesh/weft/tools/weft/internal/manifest"
	"github.com/weftmesh/weft/tools/weft/internal/usage"
)

func run(t *testing.T, args ...string) (string, error) {
	t.Helper()
	out, errOut, err := kubetest.Play(t, "", append([]string{"authz"}, args...), Command())
	return errOut + out, err // notes come first
}

// Each file holds the objects of a cluster, command lines, and what they print.
func TestGolden(t *testing.T) {
	for _, f := range golden.Files(t, "testdata/*.txtar") {
		t.Run(f.Name, func(t *testing.T) {
			s := kubetest.Start(t, "")
			for line := range strings.Lines(string(f.Part("kinds"))) {
				gv, kind, _ := strings.Cut(strings.TrimSpace(line), " ")
				s.Serve(gv, kind, true)
			}
			docs, err := manifest.Parse(f.Path, f.Part("cluster"))
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range docs {
				s.Put(&unstructured.Unstructured{Object: d.Object})
			}
			var b strings.Builder
			for line := range strings.Lines(string(f.Part("args"))) {
				b.WriteString("$ authz " + line)
				got, err := run(t, append([]string{"--kubeconfig", s.Kubeconfig}, strings.Fields(line)...)...)
				b.WriteString(got)
				if p, ok := errors.AsType[*say.Problem](err); ok {
					b.WriteString(p.What + "\n")
				} else if err != nil {
					t.Fatal(err)
				}
			}
			f.Want(t, b.String())
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
