// Command weft-cluster starts and ends real Kubernetes clusters on this machine,
// for Weft's tests and for looking around.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weftmesh/weft/e2e/internal/cluster"
	"github.com/weftmesh/weft/services/kit/say"
)

const usage = `usage: weft-cluster [-dir DIR] [-kube DIR] [-name c1] COMMAND

  up [-nodes N] [-ipv6]   start a cluster, or the nodes that it lacks
  up -light [-controllers]
                          run an API server alone, as any user, until Ctrl-C
  down [-all]             end the cluster, or all that are in -dir
  status                  what runs
  kubeconfig              print where the cluster's KUBECONFIG is
  kubectl ARGS…           run kubectl on the cluster
  images [-only a,b]      build Weft's images into .bin/images
  load IMAGE.tar…         make images known to every node
  exec NODE COMMAND…      run a command inside a node
  stop|start|pause|resume NODE COMPONENT
                          what a test does to kube-apiserver and the like

-dir   where clusters are kept (default .bin/cluster of the repository)
-kube  where hyperkube and coredns are (default .bin/kube)
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGINT, unix.SIGTERM)
	part, err := cluster.Main(ctx, os.Args[1:])
	if !part {
		err = run(ctx, os.Args[1:], os.Stdout)
	}
	stop()
	if err != nil {
		say.Print(os.Stderr, cluster.Program, err, say.Plain)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, w io.Writer) error {
	began := time.Now()
	o := cluster.Options{Progress: func(step string) {
		fmt.Fprintf(w, "%5.1f s  %s\n", time.Since(began).Seconds(), step)
	}}
	flags := flag.NewFlagSet(cluster.Program, flag.ContinueOnError)
	flags.Usage = func() { fmt.Fprint(flags.Output(), usage) }
	flags.StringVar(&o.Dir, "dir", "", "")
	flags.StringVar(&o.Kube, "kube", "", "")
	flags.StringVar(&o.Name, "name", "", "")
	if err := flags.Parse(args); err != nil {
		return parseError(err)
	}
	if flags.NArg() == 0 {
		return &say.Problem{What: "no command was given", Next: "weft-cluster -help"}
	}
	command, rest := flags.Arg(0), flags.Args()[1:]
	for name, do := range commands {
		if name == command {
			return do(ctx, o, rest, w)
		}
	}
	return &say.Problem{What: fmt.Sprintf("no command is called %q", command), Next: "weft-cluster -help"}
}

// parseError: what was wrong with the flags is printed already.
func parseError(err error) error {
	if errors.Is(err, flag.ErrHelp) {
		return nil
	}
	return fmt.Errorf("reading flags: %w", err)
}
