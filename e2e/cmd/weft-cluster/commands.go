package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/weftmesh/weft/e2e/internal/cluster"
	"github.com/weftmesh/weft/e2e/internal/node"
)

type command func(ctx context.Context, o cluster.Options, args []string, w io.Writer) error

var commands = map[string]command{
	"up":         up,
	"down":       down,
	"status":     status,
	"kubectl":    kubectl,
	"kubeconfig": kubeconfig,
	"load":       load,
	"images":     images,
	"exec":       execute,
	"stop":       on((*node.Node).Stop),
	"pause":      on((*node.Node).Pause),
	"resume":     on((*node.Node).Resume),
	"start": on(func(n *node.Node, ctx context.Context, component string) error {
		return n.Start(ctx, component)
	}),
}

func up(ctx context.Context, o cluster.Options, args []string, w io.Writer) error {
	flags := flag.NewFlagSet("up", flag.ContinueOnError)
	flags.StringVar(&o.Name, "name", o.Name, "the cluster's name (default c1)")
	flags.IntVar(&o.Nodes, "nodes", 1, "how many nodes it shall have")
	flags.BoolVar(&o.IPv6, "ipv6", false, "give a new cluster addresses of both families")
	light := flags.Bool("light", false, "run an API server alone until Ctrl-C")
	flags.BoolVar(&o.Controllers, "controllers", false, "with -light: also run the controllers")
	if err := flags.Parse(args); err != nil {
		return parseError(err)
	}
	if flags.NArg() > 0 {
		return surplus(flags.Args())
	}
	if *light {
		return upLight(ctx, o, w)
	}
	c, err := cluster.Up(ctx, o)
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "export KUBECONFIG=%s\n", c.Kubeconfig())
	return nil
}

// down needs -all for all: others may have clusters in the same directory.
func down(ctx context.Context, o cluster.Options, args []string, _ io.Writer) error {
	flags := flag.NewFlagSet("down", flag.ContinueOnError)
	flags.StringVar(&o.Name, "name", o.Name, "the cluster's name (default c1)")
	all := flags.Bool("all", false, "end every cluster of -dir")
	if err := flags.Parse(args); err != nil {
		return parseError(err)
	}
	switch {
	case flags.NArg() > 0:
		return surplus(flags.Args())
	case *all && o.Name != "":
		return errors.New("-all and -name exclude each other")
	case !*all && o.Name == "":
		o.Name = cluster.DefaultName
	}
	return cluster.Down(ctx, o)
}

func status(ctx context.Context, o cluster.Options, args []string, w io.Writer) error {
	if len(args) > 0 {
		return surplus(args)
	}
	return cluster.Status(ctx, o, w)
}

func kubectl(_ context.Context, o cluster.Options, args []string, _ io.Writer) error {
	return cluster.Kubectl(o, args)
}

func surplus(args []string) error {
	return fmt.Errorf("what is %q for? flags come first", args)
}

// upLight ends the control plane when it is interrupted.
func upLight(ctx context.Context, o cluster.Options, w io.Writer) error {
	c, err := cluster.Light(ctx, o)
	if err != nil {
		return err
	}
	o.Progress("the API server is ready; Ctrl-C ends it")
	fmt.Fprintf(w, "export KUBECONFIG=%s\n", c.Kubeconfig())
	<-ctx.Done()
	return c.Down()
}

func kubeconfig(_ context.Context, o cluster.Options, args []string, w io.Writer) error {
	if len(args) > 0 {
		return surplus(args)
	}
	file, err := cluster.KubeconfigFile(o)
	if err != nil {
		return err
	}
	fmt.Fprintln(w, file)
	return nil
}

func load(ctx context.Context, o cluster.Options, tars []string, _ io.Writer) error {
	if len(tars) == 0 {
		return errors.New("load needs the files of images")
	}
	c, err := cluster.Attach(ctx, o)
	if err != nil {
		return err
	}
	return c.Load(ctx, tars...)
}

func execute(ctx context.Context, o cluster.Options, args []string, w io.Writer) error {
	if len(args) < 2 {
		return errors.New("exec needs a node and a command")
	}
	n, err := find(ctx, o, args[0])
	if err != nil {
		return err
	}
	cmd := n.Command(ctx, args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, w, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("on node %s: %w", n.Host, err)
	}
	return nil
}

// on makes a command of what is done to a component of a node.
func on(act func(n *node.Node, ctx context.Context, component string) error) command {
	return func(ctx context.Context, o cluster.Options, args []string, _ io.Writer) error {
		if len(args) != 2 {
			return errors.New("it needs a node and a component, as in: stop n1 kube-apiserver")
		}
		n, err := find(ctx, o, args[0])
		if err != nil {
			return err
		}
		return act(n, ctx, args[1])
	}
}

func find(ctx context.Context, o cluster.Options, name string) (*node.Node, error) {
	c, err := cluster.Attach(ctx, o)
	if err != nil {
		return nil, err
	}
	n := c.Node(name)
	if n == nil {
		return nil, fmt.Errorf("the cluster has no node %s", name)
	}
	return n, nil
}
