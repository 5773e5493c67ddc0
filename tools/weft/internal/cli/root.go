// Package cli is the user's command: its tree, its words and its exit codes.
// A command returns errors; only Main prints them and decides how the process
// ends: 0 done, 1 failed, 64 asked for something that makes no sense.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weftmesh/weft/services/kit/conf"
	"github.com/weftmesh/weft/services/kit/run"
	"github.com/weftmesh/weft/services/kit/say"
	"github.com/weftmesh/weft/tools/weft/internal/authz"
	"github.com/weftmesh/weft/tools/weft/internal/busd"
	"github.com/weftmesh/weft/tools/weft/internal/check"
	"github.com/weftmesh/weft/tools/weft/internal/demo"
	"github.com/weftmesh/weft/tools/weft/internal/diag"
	"github.com/weftmesh/weft/tools/weft/internal/install"
	"github.com/weftmesh/weft/tools/weft/internal/kube"
	"github.com/weftmesh/weft/tools/weft/internal/manifest"
	"github.com/weftmesh/weft/tools/weft/internal/pki"
	"github.com/weftmesh/weft/tools/weft/internal/profile"
	"github.com/weftmesh/weft/tools/weft/internal/rotate"
	"github.com/weftmesh/weft/tools/weft/internal/tracing"
	"github.com/weftmesh/weft/tools/weft/internal/whatif"
)

// commands is the one place where a command joins the tree.
func commands() []func() *cobra.Command {
	return []func() *cobra.Command{
		install.Command,
		install.UpgradeCommand,
		install.UninstallCommand,
		install.PruneCommand,
		install.CNICommand,
		check.Command,
		diag.Command,
		diag.ExplainCommand,
		rotate.Command,
		manifest.InjectCommand,
		manifest.UninjectCommand,
		profile.Command,
		authz.Command,
		whatif.Command,
		statusCommand,
		historyCommand,
		tracing.Command,
		demo.Command,
		busd.Command,
		pki.Command,
		versionCommand,
		docCommand,
	}
}

const who = "weft"

// Main runs the command that args ask for and returns the exit code.
func Main(ctx context.Context, args []string, out, errOut io.Writer) int {
	root := newRoot()
	root.SetOut(out)
	root.SetErr(errOut)
	if path := plugin(root, args); path != "" {
		return runPlugin(ctx, path, args[1:], out, errOut)
	}
	root.SetArgs(twoDashes(args, longFlags(root)))
	err := root.ExecuteContext(ctx)
	if err == nil {
		return run.ExitStopped
	}
	detail := say.Plain
	if verbose, _ := root.PersistentFlags().GetBool("verbose"); verbose {
		detail = say.Verbose
	}
	return report(errOut, err, detail)
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:           who,
		Short:         "Install, look at, try and repair a Weft mesh",
		SilenceErrors: true, // Main prints them
		SilenceUsage:  true,
		Args:          cobra.NoArgs,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	new(kube.Flags).Bind(root.PersistentFlags()) // commands read them with kube.From
	root.PersistentFlags().BoolP("verbose", "v", false, "tell more: the causes of errors, what the bus says")
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usageError{cmd: cmd.CommandPath(), err: err}
	})
	for _, make := range commands() {
		root.AddCommand(make())
	}
	complete(root)
	return root
}

// usageError is a command line that makes no sense.
type usageError struct {
	cmd string
	err error
}

func (u usageError) Error() string { return u.err.Error() }
func (u usageError) Unwrap() error { return u.err }

// report tells a person what went wrong and returns the exit code.
func report(w io.Writer, err error, detail say.Detail) int {
	if wrong, ok := errors.AsType[*conf.Error](err); ok {
		say.Print(w, who, &say.Problem{
			What: "the settings are wrong", Why: wrong.Error(), Next: "correct the above; --help lists every setting", Err: err,
		}, say.Plain)
		return run.ExitConfig
	}
	if wrong, ok := errors.AsType[usageError](err); ok {
		say.Print(w, who, &say.Problem{What: wrong.Error(), Next: "see `" + wrong.cmd + " --help`"}, say.Plain)
		return run.ExitConfig
	}
	// cobra has no type for a command that does not exist.
	if strings.HasPrefix(err.Error(), "unknown command ") {
		first, _, _ := strings.Cut(err.Error(), "\n")
		say.Print(w, who, &say.Problem{What: first, Next: "see `" + who + " --help`"}, say.Plain)
		return run.ExitConfig
	}
	say.Print(w, who, err, detail)
	if problem, ok := errors.AsType[*say.Problem](err); ok {
		return problem.Exit()
	}
	return run.ExitFailed
}

// longFlags are the names of all flags of the tree that have more than a letter.
func longFlags(cmd *cobra.Command) map[string]bool {
	names := map[string]bool{"help": true}
	var visit func(*cobra.Command)
	visit = func(c *cobra.Command) {
		add := func(f *pflag.Flag) { names[f.Name] = len(f.Name) > 1 }
		c.Flags().VisitAll(add)
		c.PersistentFlags().VisitAll(add)
		for _, sub := range c.Commands() {
			visit(sub)
		}
	}
	visit(cmd)
	return names
}

// twoDashes lets a flag be written with one dash, as the services have it.
func twoDashes(args []string, known map[string]bool) []string {
	out := make([]string, 0, len(args))
	for i, arg := range args {
		if arg == "--" {
			return append(out, args[i:]...)
		}
		name, _, _ := strings.Cut(strings.TrimPrefix(arg, "-"), "=")
		if strings.HasPrefix(arg, "-") && known[name] {
			arg = "-" + arg
		}
		out = append(out, arg)
	}
	return out
}

// output is how a command writes its answer.
type output string

// bindOutput adds -o to cmd.
func bindOutput(cmd *cobra.Command) *output {
	o := output("table")
	cmd.Flags().VarP(&o, "output", "o", "how to write the answer: table or json")
	return &o
}

// String, Set and Type make an output a flag's value.
func (o *output) String() string { return string(*o) }

// Set refuses what no command can write.
func (o *output) Set(text string) error {
	switch text {
	case "table", "json":
		*o = output(text)
		return nil
	}
	return fmt.Errorf("%q is neither table nor json", text)
}

// Type is the placeholder in help.
func (o *output) Type() string { return "format" }

// complete completes what flags can name in the cluster, in the whole tree.
func complete(root *cobra.Command) {
	known := map[string]kube.Complete{
		"context":           kube.CompleteContexts,
		"linkerd-namespace": kube.CompleteNames(kube.Namespaces),
		"cni-namespace":     kube.CompleteNames(kube.Namespaces),
		"namespace":         kube.CompleteNames(kube.Namespaces),
	}
	var visit func(*cobra.Command)
	visit = func(cmd *cobra.Command) {
		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if _, own := cmd.GetFlagCompletionFunc(f.Name); own || known[f.Name] == nil {
				return
			}
			_ = cmd.RegisterFlagCompletionFunc(f.Name, known[f.Name]) // the flag exists
		})
		for _, sub := range cmd.Commands() {
			visit(sub)
		}
	}
	visit(root)
}
