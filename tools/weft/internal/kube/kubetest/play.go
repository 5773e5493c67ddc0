package kubetest

import (
	"bytes"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/weftmesh/weft/tools/weft/internal/kube"
)

// Play runs a command line as the tree would, and returns what it writes.
func Play(t *testing.T, in string, args []string, commands ...*cobra.Command) (out, errOut string, err error) {
	t.Helper()
	root := &cobra.Command{Use: "weft", SilenceErrors: true, SilenceUsage: true}
	new(kube.Flags).Bind(root.PersistentFlags())
	root.PersistentFlags().Bool("verbose", false, "")
	root.AddCommand(commands...)
	var o, e bytes.Buffer
	root.SetIn(strings.NewReader(in))
	root.SetOut(&o)
	root.SetErr(&e)
	root.SetArgs(args)
	err = root.ExecuteContext(t.Context())
	return o.String(), e.String(), err
}
