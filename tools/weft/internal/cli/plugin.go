package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weftmesh/weft/services/kit/run"
	"github.com/weftmesh/weft/services/kit/say"
)

// plugin finds the executable for a sub-command that the tree does not have:
// weft-X, or linkerd-X, since Linkerd's extensions work here, too. The first on
// PATH wins; "" means that there is none.
func plugin(root *cobra.Command, args []string) string {
	if len(args) == 0 || args[0] == "" || strings.HasPrefix(args[0], "-") || strings.HasPrefix(args[0], "_") || strings.ContainsAny(args[0], `/\`) {
		return ""
	}
	if slices.Contains([]string{"help", "completion"}, args[0]) { // cobra adds them when it runs
		return ""
	}
	for _, cmd := range root.Commands() {
		if cmd.Name() == args[0] || cmd.HasAlias(args[0]) {
			return ""
		}
	}
	for _, name := range []string{who + "-" + args[0], "linkerd-" + args[0]} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	return ""
}

// leave is how long an executable has to end once it was asked to.
const leave = 10 * time.Second

// runPlugin runs an executable in our place and returns its exit code.
func runPlugin(ctx context.Context, path string, args []string, out, errOut io.Writer) int {
	cmd := exec.CommandContext(ctx, path, args...) //nolint:gosec // running it is what was asked for
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, out, errOut
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = leave
	err := cmd.Run()
	if err == nil {
		return run.ExitStopped
	}
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.ExitCode() > 0 {
		return exit.ExitCode() // it has said why itself
	}
	say.Print(errOut, who, fmt.Errorf("running %s: %w", path, err), say.Plain)
	return run.ExitFailed
}
