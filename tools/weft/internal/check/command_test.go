package check

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"

	"github.com/weftmesh/weft/services/kit/say"
	"github.com/weftmesh/weft/tools/weft/internal/check/report"
	"github.com/weftmesh/weft/tools/weft/internal/kube"
	"github.com/weftmesh/weft/tools/weft/internal/usage"
)

func TestFlagsThatMakeNoSense(t *testing.T) {
	for _, args := range [][]string{{"--pre", "--proxy"}, {"--wait=-1s"}, {"--wait=25h"}} {
		cmd := Command()
		cmd.SetArgs(args)
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		err := cmd.ExecuteContext(t.Context())
		if p, ok := errors.AsType[*say.Problem](err); !ok || p.Exit() != usage.Exit {
			t.Errorf("check %v = %v, want exit code %d", args, err, usage.Exit)
		}
	}
	for _, args := range [][]string{{"-o", "wide"}, {"more"}} {
		cmd := Command()
		cmd.SetArgs(args)
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		if err := cmd.ExecuteContext(t.Context()); err == nil {
			t.Errorf("check %v = nil", args)
		}
	}
}

func TestPassOn(t *testing.T) {
	root := &cobra.Command{Use: "weft"}
	var flags kube.Flags
	flags.Bind(root.PersistentFlags())
	cmd := Command()
	root.AddCommand(cmd)
	var got []string
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		got = passOn(cmd)
		return nil
	}
	root.SetArgs([]string{"check", "--proxy", "-n", "shop", "-o", "json", "--wait=1m", "--as-group=a", "--as-group=b", "--context=kind"})
	if err := root.ExecuteContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	want := []string{"--as-group=a", "--as-group=b", "--context=kind", "--namespace=shop", "--proxy=true", "--wait=1m0s"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("passOn() (-want +got):\n%s", diff)
	}
}

// asking runs a whole command over a cluster.
func asking(t *testing.T, c *cluster, f *flags, e Extensions) (string, error) {
	t.Helper()
	w := &World{
		Namespace: "linkerd", CLI: "v1", Now: func() time.Time { return today },
		Connect: func() (Door, error) { return c, nil },
	}
	var out, errOut bytes.Buffer
	err := f.ask(t.Context(), w, e, nil, &out, &errOut)
	return out.String(), err
}

func TestExitCodeAndExtensions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &flags{format: report.Short}
		bad := Extensions{Exec: func(context.Context, string, ...string) ([]byte, error) { return nil, errors.New("never run") }}
		out, err := asking(t, mesh(t), f, bad)
		if err != nil || out != "Status check results are √\n" {
			t.Errorf("a good mesh: %q, %v", out, err)
		}
		c := mesh(t)
		c.add(t, "apiVersion: v1\nkind: Namespace\nmetadata: {name: v, labels: {linkerd.io/extension: viz}}\n")
		out, err = asking(t, c, f, bad)
		const want = `linkerd-viz
-----------
‼ Linkerd extension command linkerd-viz exists
    exec: "linkerd-viz": executable file not found in $PATH
    see ` + Hints + `extensions for hints

Status check results are ‼
`
		if diff := cmp.Diff(want, out); diff != "" || err != nil {
			t.Errorf("an extension without its program: %v (-want +got):\n%s", err, diff)
		}
		c.failing["deployments"] = errors.New("no answer")
		if _, err = asking(t, c, f, bad); err == nil {
			t.Error("a mesh with a failed check is no error")
		}
		if p, ok := errors.AsType[*say.Problem](err); !ok || p.Exit() != 1 || p.What != "1 check failed" {
			t.Errorf("a failed check = %v, want exit code 1", err)
		}
	})
}
