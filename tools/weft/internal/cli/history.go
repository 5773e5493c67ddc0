package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"github.com/weftmesh/weft/bus"
	"github.com/weftmesh/weft/services/kit/say"
	"github.com/weftmesh/weft/tools/weft/internal/ask"
	"github.com/weftmesh/weft/tools/weft/internal/history"
	"github.com/weftmesh/weft/tools/weft/internal/kube"
	"github.com/weftmesh/weft/tools/weft/internal/settings"
	"github.com/weftmesh/weft/tools/weft/internal/usage"
)

type historyConfig struct {
	Bus     bus.Config `help:"where the mesh's events are"`
	History struct {
		Domain string `help:"JetStream domain of the server that keeps the history; empty means the servers of the bus themselves"`
	}
}

// historyCommand returns `weft history`.
func historyCommand() *cobra.Command {
	var at, since, until string
	cmd := &cobra.Command{
		Use:   "history KIND NAMESPACE/NAME",
		Short: "Tell how the mesh saw an object at a moment of the past, or what changed since",
		Example: `  weft history pod shop/web-0 --since 10m
  weft history server shop/web-http --at 14:03:11
  weft history endpoints shop/web --since "2026-11-30 14:00" --until "2026-11-30 14:10" -o json
  weft history node east-1 -bus.servers nats://127.0.0.1:14200    # a mesh without Kubernetes`,
		Long: `Tell how the mesh saw an object at a moment of the past (--at), or what changed of
it since then (--since, an hour ago unless something else is said).

What is told is what the log of the mesh had: the fields that some output reads,
under the names of the log's rows. For each change: when the history took it, when
the watcher saw its cause (OBSERVED), where it is in the log, and its trace.

The history is kept where it is asked for: bus.history.enabled of the chart,
-history.enabled of a watcher on a bus with JetStream (weft bus --history). It has
an end in time and in bytes. It is a witness only: what it missed while it was away
is told as a GAP, and the log does not wait for it.

The times of --at, --since and --until are those at which the history took a change:
how long ago (10m), a time of day (14:03), or a date and time; local time unless a
zone is given. endpoints NAMESPACE/SERVICE tells all addresses of a Service.

The bus is found as by weft status.`,
		Args: objectArgs,
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(args) == 0 {
				return history.Names(), cobra.ShellCompDirectiveNoFileComp
			}
			return nil, cobra.ShellCompDirectiveNoFileComp
		},
	}
	cmd.Flags().StringVar(&at, "at", "", "tell how it was at this moment")
	cmd.Flags().StringVar(&since, "since", "", "tell what changed from this moment on (default 1h)")
	cmd.Flags().StringVar(&until, "until", "", "tell what changed up to this moment (default: now)")
	format := bindOutput(cmd)
	defaults := historyConfig{}
	defaults.History.Domain = bus.HistoryDomain
	load, bindErr := settings.Bind(cmd, defaults)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if bindErr != nil {
			return bindErr
		}
		cfg, err := load()
		if err != nil {
			return err
		}
		quiet(cmd)
		question, err := historyAsk(args, at, since, until, time.Now())
		if err != nil {
			return err
		}
		asking := ask.Config{Bus: cfg.Bus}
		if len(cfg.Bus.Servers) == 0 {
			if asking, err = throughCluster(cmd.Context(), kube.From(cmd), asking); err != nil {
				return err
			}
			if asking.HistoryDomain != nil && !cmd.Flags().Changed("history.domain") {
				cfg.History.Domain = *asking.HistoryDomain
			}
		}
		answer, err := askHistory(cmd.Context(), asking, cfg.History.Domain, question, cmd.ErrOrStderr())
		if err != nil {
			return err
		}
		return write(cmd.OutOrStdout(), *format, "history", answer, history.Text, history.JSON)
	}
	return cmd
}

// historyAsk reads what is asked for.
func historyAsk(args []string, at, since, until string, now time.Time) (history.Ask, error) {
	object, err := history.Parse(args[0], args[1])
	if err != nil {
		return history.Ask{}, err
	}
	a := history.Ask{Object: object, Now: now, Since: now.Add(-time.Hour)}
	if at != "" && since+until != "" {
		return a, &say.Problem{Code: usage.Exit, What: "--at is one moment, --since and --until are a time", Next: "write one or the other"}
	}
	for _, m := range []struct {
		flag, text string
		into       *time.Time
	}{{"at", at, &a.At}, {"since", since, &a.Since}, {"until", until, &a.Until}} {
		if m.text == "" {
			continue
		}
		if *m.into, err = history.Moment(m.flag, m.text, now); err != nil {
			return a, err
		}
		// A clock that goes a little wrong is forgiven.
		if m.into.Sub(now) > time.Minute {
			return a, &say.Problem{
				Code: usage.Exit, What: fmt.Sprintf("--%s %s is in the future", m.flag, m.text), Why: "now is " + now.Format(time.RFC3339),
				Next: "the past alone is kept; `weft policy check` foretells what manifests would do",
			}
		}
	}
	if !a.Until.IsZero() && a.Until.Before(a.Since) {
		return a, &say.Problem{Code: usage.Exit, What: "--until is before --since", Next: "swap them"}
	}
	return a, nil
}

// progressEvery messages a line is written: some seconds of reading through an
// API server. It is a multiple of bus.History's own step.
const progressEvery = 100 * 1024

// askHistory connects, asks, and explains what can't be answered.
// What takes long is said on progress.
func askHistory(ctx context.Context, asking ask.Config, domain string, a history.Ask, progress io.Writer) (history.Answer, error) {
	t, err := bus.Connect(ctx, asking.Bus, "cli", prometheus.NewRegistry(), asking.Options...)
	if err != nil {
		return history.Answer{}, fmt.Errorf("asking the history: %w", err)
	}
	defer t.Close()
	if err := asking.Reach(ctx, t); err != nil {
		return history.Answer{}, err
	}
	h, err := bus.OpenHistory(t, domain)
	if err != nil {
		return history.Answer{}, err
	}
	h.Progress = func(messages int) {
		if messages%progressEvery == 0 {
			// Lost progress is no loss.
			_, _ = fmt.Fprintf(progress, "read %d messages of the log\n", messages)
		}
	}
	a.Cluster = t.Cluster()
	story, err := h.Tell(ctx, a.Question())
	if err == nil && !a.At.IsZero() && story.From.After(a.At) {
		err = bus.ErrBeforeHistory
	}
	if err != nil {
		return history.Answer{}, history.Explain(err, a, story.Kept)
	}
	return history.From(a, story), nil
}

// quiet keeps the bus's own log lines away: our errors say it better.
func quiet(cmd *cobra.Command) {
	level := slog.LevelError + 1
	if verbose, _ := cmd.Flags().GetBool("verbose"); verbose {
		level = slog.LevelDebug
	}
	slog.SetDefault(slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), &slog.HandlerOptions{Level: level})))
}

var errObject = errors.New("needs two arguments: a kind, and namespace/name")

// objectArgs refuses anything but a kind and a name, as a wrong command line.
func objectArgs(cmd *cobra.Command, args []string) error {
	if len(args) != 2 {
		return usageError{cmd: cmd.CommandPath(), err: errObject}
	}
	return nil
}
