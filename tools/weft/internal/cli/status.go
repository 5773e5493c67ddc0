package cli

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/weftmesh/weft/bus"
	"github.com/weftmesh/weft/services/kit/conf"
	"github.com/weftmesh/weft/services/kit/say"
	"github.com/weftmesh/weft/tools/weft/internal/ask"
	"github.com/weftmesh/weft/tools/weft/internal/kube"
	"github.com/weftmesh/weft/tools/weft/internal/settings"
	"github.com/weftmesh/weft/tools/weft/internal/show"
	"github.com/weftmesh/weft/tools/weft/internal/usage"
)

type statusConfig struct {
	Wait time.Duration `help:"how long to wait for the bus; 0 means 3s"`
	Hear time.Duration `help:"how long to listen when no heartbeat answers; 0 means 6s, since each process speaks every 5s"`
	Bus  bus.Config    `help:"where the mesh's events are"`
}

// Check judges the settings.
func (c statusConfig) Check() error {
	switch {
	case c.Wait < 0 || c.Wait > time.Minute:
		return conf.Bad("Wait", "%s is not between 0 and 1m", c.Wait)
	case c.Hear < 0 || c.Hear > 10*time.Minute:
		return conf.Bad("Hear", "%s is not between 0 and 10m", c.Hear)
	}
	return nil
}

// statusCommand returns `weft status`.
func statusCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "status",
		Short: "List the mesh's processes: version, how far each has read, whether it is alive",
		Example: `  weft status --context production
  weft status -bus.servers nats://127.0.0.1:14200    # a mesh without Kubernetes`,
		Long: `List the mesh's processes: version, how far each has read the log of changes
(EPOCH/SEQ), how long the last change took to reach it (LAG), and whether it is

  live     it speaks, and hears the writer
  stale    it speaks, and serves what it last read: it does not hear the writer
  leaving  it said that it stops
  silent   it has said nothing for 15 s: it may be dead or cut off

Below the table are the objects that the watcher had to skip, with the reasons,
and how many pods came up without the proxy that an annotation wants.
The answer is heartbeat's; where none runs, the command listens itself.

The bus is the one that -bus.servers names. Without it, it is the bus of the mesh
in the kubeconfig's cluster, reached through the API server; and without a
kubeconfig the one on this machine.`,
		Args: usage.NoArgs,
	}
	format := bindOutput(cmd)
	load, bindErr := settings.Bind(cmd, statusConfig{})
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if bindErr != nil {
			return bindErr
		}
		cfg, err := load()
		if err != nil {
			return err
		}
		quiet(cmd)
		ctx := cmd.Context()
		asking := ask.Config{Bus: cfg.Bus, Wait: cfg.Wait, Hear: cfg.Hear}
		if len(cfg.Bus.Servers) == 0 {
			if asking, err = throughCluster(ctx, kube.From(cmd), asking); err != nil {
				return err
			}
		}
		status, err := askStatus(ctx, asking, cmd.ErrOrStderr())
		if err != nil {
			return err
		}
		return write(cmd.OutOrStdout(), *format, "status", status, show.Text, show.JSON)
	}
	return cmd
}

// askStatus asks the mesh. What takes a while is said on progress.
func askStatus(ctx context.Context, cfg ask.Config, progress io.Writer) (show.Status, error) {
	answer, err := ask.Roll(ctx, cfg, func(wait time.Duration) {
		// Lost progress is no loss.
		_, _ = fmt.Fprintf(progress, "No heartbeat answers: listening for %s to what the processes say themselves.\n", wait)
	})
	if err != nil {
		return show.Status{}, err
	}
	source := show.Heartbeat
	if answer.Heard {
		source = show.Listening
	}
	if len(answer.Roll.GetEntries()) == 0 {
		return show.Status{}, &say.Problem{
			What: fmt.Sprintf("no process of cluster %q is on the bus", answer.Cluster),
			Why:  "the bus answers, but no process of the mesh has said anything",
			Next: "start the mesh (`weft demo` runs a small one), or name another cluster with --bus.cluster",
		}
	}
	return show.From(answer.Roll, answer.Cluster, source, answer.At), nil
}

// write writes an answer in the format that was asked for; what names it in errors.
func write[A any](w io.Writer, format output, what string, answer A, asText func(A) string, asJSON func(A) (string, error)) error {
	text := asText(answer)
	if format == "json" {
		var err error
		if text, err = asJSON(answer); err != nil {
			return err
		}
	}
	if _, err := io.WriteString(w, text); err != nil {
		return fmt.Errorf("writing the %s: %w", what, err)
	}
	return nil
}
