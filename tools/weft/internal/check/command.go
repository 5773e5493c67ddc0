package check

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/weftmesh/weft/charts"
	"github.com/weftmesh/weft/services/kit/build"
	"github.com/weftmesh/weft/services/kit/say"
	"github.com/weftmesh/weft/tools/weft/internal/check/engine"
	"github.com/weftmesh/weft/tools/weft/internal/check/report"
	"github.com/weftmesh/weft/tools/weft/internal/kube"
	"github.com/weftmesh/weft/tools/weft/internal/usage"
)

// flags are what `weft check` can be asked.
type flags struct {
	pre, crds, proxy bool
	cni              bool
	namespace        string
	expected         string
	releases         string // who is asked for the newest version
	version          string // instead of this program's
	wait             time.Duration
	format           report.Format
}

const (
	defaultWait = 5 * time.Minute
	mostWait    = 24 * time.Hour
)

// Command returns `weft check`.
func Command() *cobra.Command {
	f := &flags{format: report.Table}
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Check whether a mesh can be installed, or works",
		Long: `Check whether a cluster can take a mesh (--pre, --crds), or whether the one that is
there works (--proxy: also the workloads' proxies). Categories, checks, marks and
JSON are those of ` + "`linkerd check`" + `; the categories weft-… are about the bus and the
watcher, which Linkerd does not have.

  √  it is well   ‼  it is not, but the mesh works   ×  it is not

The exit code is 0 if nothing has ×. Nothing in the cluster is changed. For the
newest version --version-url is asked, for 5 seconds at most, unless
--expected-version says which it is.`,
		Example: `  weft check --pre                 before the installation
  weft check                       after it
  weft check --proxy -n shop       the proxies of a namespace
  weft check -o json --wait 0s     for a program; nothing is waited for`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return run(cmd, f)
		},
	}
	fs := cmd.Flags()
	fs.BoolVar(&f.pre, "pre", false, "only whether a control plane could be installed")
	fs.BoolVar(&f.crds, "crds", false, "only whether the CRDs are installed")
	fs.BoolVar(&f.proxy, "proxy", false, "also the workloads' proxies")
	fs.StringVarP(&f.namespace, "namespace", "n", "", "namespace of the workloads, with --proxy (default: all)")
	fs.BoolVar(&f.cni, "linkerd-cni-enabled", false, "with --pre: traffic is to be redirected by the CNI plugin")
	fs.StringVar(&f.expected, "expected-version", "", "the version that all should have (default: the newest release)")
	fs.StringVar(&f.releases, "version-url", releases, "who is asked for the newest release, {\"tag_name\": …}; empty: nobody")
	fs.StringVar(&f.version, "cli-version-override", "", "the version that this program is taken for")
	fs.DurationVar(&f.wait, "wait", defaultWait, "how long to wait for what may still come right")
	fs.VarP(&f.format, "output", "o", "how to write the answers: table, json or short")
	if err := fs.MarkHidden("cli-version-override"); err != nil {
		panic(err) // the flag is defined above
	}
	return cmd
}

func (f *flags) set() Set {
	switch {
	case f.pre:
		return Pre
	case f.crds:
		return CRDs
	case f.proxy:
		return Proxy
	}
	return Default
}

// judge judges the flags.
func (f *flags) judge() error {
	asked := 0
	for _, set := range []bool{f.pre, f.crds, f.proxy} {
		if set {
			asked++
		}
	}
	wrong := ""
	switch {
	case asked > 1:
		wrong = "only one of --pre, --crds and --proxy makes sense"
	case f.wait < 0 || f.wait > mostWait:
		wrong = fmt.Sprintf("--wait %s is not between 0s and %s", f.wait, mostWait)
	default:
		return nil
	}
	return &say.Problem{Code: usage.Exit, What: wrong, Next: "see `weft check --help`"}
}

func run(cmd *cobra.Command, f *flags) error {
	if err := f.judge(); err != nil {
		return err
	}
	if f.version == "" {
		f.version = build.Version()
	}
	to := kube.From(cmd)
	w := &World{
		Connect:   func() (Door, error) { return to.Connect() },
		Namespace: to.Mesh, CNINamespace: to.CNI, Target: f.namespace, CNI: f.cni,
		CLI: f.version, Expected: f.expected, Now: time.Now,
	}
	if f.releases != "" {
		w.Newest = newestAt(f.releases)
	}
	w.Manifests = func() ([]*unstructured.Unstructured, error) {
		return clusterManifests(charts.Options{Namespace: to.Mesh, Version: build.Version()})
	}
	e := Extensions{Dirs: filepath.SplitList(os.Getenv("PATH")), Exec: execute(cmd.ErrOrStderr())}
	return f.ask(cmd.Context(), w, e, passOn(cmd), cmd.OutOrStdout(), cmd.ErrOrStderr())
}

// passOn are the flags that an extension's check should have, too.
func passOn(cmd *cobra.Command) []string {
	var args []string
	cmd.Flags().Visit(func(flag *pflag.Flag) {
		switch flag.Name {
		case "output", "pre", "crds", "linkerd-cni-enabled", "expected-version", "version-url":
			return // ours, or those of a run that asks no extension
		}
		if many, ok := flag.Value.(pflag.SliceValue); ok {
			for _, one := range many.GetSlice() {
				args = append(args, "--"+flag.Name+"="+one)
			}
			return
		}
		args = append(args, "--"+flag.Name+"="+flag.Value.String())
	})
	return args
}

// ask asks all that the flags want to know of w and writes the answers.
func (f *flags) ask(ctx context.Context, w *World, e Extensions, args []string, out, errOut io.Writer) error {
	writer := &report.Writer{Out: out, Format: f.format, Hints: Hints, Colour: terminal(out)}
	if terminal(errOut) {
		writer.Progress = errOut
	}
	outcome, err := engine.Runner{Wait: f.wait, Tell: writer.Tell}.Run(ctx, w.Categories(f.set()))
	if err != nil {
		return err
	}
	if set := f.set(); w.reachable && (set == Default || set == Proxy) {
		results, err := e.Results(ctx, w, args)
		if err != nil {
			return err
		}
		for _, r := range results {
			writer.Tell(r)
			outcome.Add(r.Verdict())
		}
	}
	if err := writer.End(outcome); err != nil {
		return err
	}
	if outcome.Failed > 0 {
		return &say.Problem{What: count(outcome.Failed, "check") + " failed", Next: "see the lines with × above"}
	}
	return nil
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// terminal says whether w is one; colours and progress are for people only.
func terminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	if !ok || os.Getenv("NO_COLOR") != "" || os.Getenv("TERM") == "dumb" {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
