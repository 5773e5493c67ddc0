package cli

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/weftmesh/weft/services/kit/build"
)

// versionCommand returns `weft version`.
func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print which Weft this is",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			commit := build.Commit()
			if commit == "" {
				commit = "unknown"
			}
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "weft %s\ncommit %s\n%s %s/%s\n",
				build.Version(), commit, runtime.Version(), runtime.GOOS, runtime.GOARCH)
			if err != nil {
				return fmt.Errorf("writing the version: %w", err)
			}
			return nil
		},
	}
}

// noArgs refuses arguments in the words of a wrong command line.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return usageError{cmd: cmd.CommandPath(), err: fmt.Errorf("argument %q is one too many for `%s`", args[0], cmd.CommandPath())}
}
