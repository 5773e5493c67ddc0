package install

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/weftmesh/weft/services/kit/say"
)

// noArgs refuses arguments.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return &say.Problem{
		What: fmt.Sprintf("argument %q is one too many for `%s`", args[0], cmd.CommandPath()),
		Next: fmt.Sprintf("see `%s --help`", cmd.CommandPath()), Code: exitUsage,
	}
}
