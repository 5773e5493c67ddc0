package demo

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/weftmesh/weft/services/kit/say"
	"github.com/weftmesh/weft/tools/weft/internal/usage"
)

// Command returns `weft demo`.
func Command() *cobra.Command {
	o := Options{Dir: ".demo", Manifests: filepath.Join("deploy", "demo"), Base: 14200, Every: time.Second}
	check := false
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Run a whole small mesh on this machine, with a live table",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.Out = cmd.OutOrStdout()
			if err := o.complete(); err != nil {
				return err
			}
			if check {
				return Check(cmd.Context(), o)
			}
			return Run(cmd.Context(), o)
		},
	}
	cmd.Flags().BoolVar(&check, "check", check, "run for a few seconds; exit 0 only if mTLS, denial and the loss of a replica went as they should")
	cmd.Flags().StringVar(&o.Bin, "bin", "", "directory of the binaries; empty means where this one is")
	cmd.Flags().StringVar(&o.Dir, "dir", o.Dir, "directory of this run; it is cleared at the start")
	cmd.Flags().StringVar(&o.Manifests, "manifests", o.Manifests, "directory of the demo's manifests")
	cmd.Flags().IntVar(&o.Base, "port", o.Base, "first of 50 ports on 127.0.0.1")
	cmd.Flags().DurationVar(&o.Every, "every", o.Every, "time between two tables")
	return cmd
}

// complete checks the options and fills in what follows from the machine.
func (o *Options) complete() error {
	if o.Base < 1024 || o.Base > 65000 {
		return &say.Problem{Code: usage.Exit, What: "the demo can't use ports from " + fmt.Sprint(o.Base), Why: "it needs 50 between 1024 and 65050", Next: "give --port 14200"}
	}
	if o.Every < 100*time.Millisecond {
		return &say.Problem{Code: usage.Exit, What: "a table every " + o.Every.String(), Why: "the least is 100ms", Next: "give --every 1s"}
	}
	if o.Bin == "" {
		self, err := os.Executable()
		if err != nil {
			return fmt.Errorf("finding the binaries: %w", err)
		}
		o.Bin = filepath.Dir(self)
	}
	for _, name := range []string{"watcher", "destination", "weft-proxy", "weft-demo-app"} {
		if _, err := os.Stat(filepath.Join(o.Bin, name)); err != nil {
			return &say.Problem{Code: 1, Err: err, What: "no binary " + name + " in " + o.Bin, Why: err.Error(), Next: "run `make build`, or name their directory with --bin"}
		}
	}
	if _, err := os.Stat(filepath.Join(o.Manifests, "shop")); err != nil {
		return &say.Problem{Code: 1, Err: err, What: "no demo manifests in " + o.Manifests, Why: err.Error(), Next: "run it in the repository's root, or give --manifests"}
	}
	cwd, err := os.Getwd()
	if err != nil {
		return fmt.Errorf("finding the current directory: %w", err)
	}
	o.Cwd = cwd
	for _, dir := range []*string{&o.Bin, &o.Dir, &o.Manifests} {
		abs, err := filepath.Abs(*dir)
		if err != nil {
			return fmt.Errorf("finding %s: %w", *dir, err)
		}
		*dir = abs
	}
	if info, err := os.Stdout.Stat(); err == nil {
		o.Screen = info.Mode()&os.ModeCharDevice != 0
	}
	return nil
}
