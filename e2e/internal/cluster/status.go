package cluster

import (
	"context"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"text/tabwriter"

	"github.com/weftmesh/weft/e2e/internal/node"
)

// Status writes what runs in a state directory, for a person.
func Status(ctx context.Context, o Options, w io.Writer) error {
	o, err := o.fill()
	if err != nil {
		return err
	}
	all, err := records(o.Dir)
	if err != nil {
		return err
	}
	if len(all) == 0 {
		fmt.Fprintf(w, "no cluster in %s\n", o.Dir)
		return nil
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		fmt.Fprintf(t, "cluster %s\tKUBECONFIG=%s\n", name, filepath.Join(o.Dir, name, kubeconfigFile))
		nodes, err := nodesOf(o.Dir, name)
		if err != nil {
			return err
		}
		for _, n := range nodes {
			fmt.Fprintf(t, "  node %s\t%s\n", n.Host, n.Address.Addr())
			if err := components(ctx, t, n); err != nil {
				return err
			}
		}
	}
	if err := t.Flush(); err != nil {
		return fmt.Errorf("writing the status: %w", err)
	}
	return nil
}

func components(ctx context.Context, w io.Writer, n *node.Node) error {
	states, err := n.States(ctx)
	if err != nil {
		return err
	}
	for _, c := range n.Components {
		s := states[c.Name]
		word := "stopped"
		switch {
		case s.Paused:
			word = "paused"
		case s.Running:
			word = "runs"
		}
		if s.Restarts > 0 {
			word += fmt.Sprintf(", ended %d times by itself", s.Restarts)
		}
		fmt.Fprintf(w, "    %s\t%s\n", c.Name, word)
	}
	return nil
}
