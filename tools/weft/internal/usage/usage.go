// Package usage is what a command line that makes no sense is answered with.
package usage

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/weftmesh/weft/services/kit/run"
	"github.com/weftmesh/weft/services/kit/say"
)

// Exit is the exit code.
const Exit = run.ExitConfig

// Error says what is wrong with a command's line, and where it is written how it goes.
func Error(cmd *cobra.Command, what string) error {
	return &say.Problem{Code: Exit, What: what, Next: "see `" + cmd.CommandPath() + " --help`"}
}

// NoArgs refuses arguments.
func NoArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return Error(cmd, fmt.Sprintf("argument %q is one too many for `%s`", args[0], cmd.CommandPath()))
}
