package check

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	corev1 "k8s.io/api/core/v1"

	"github.com/weftmesh/weft/services/kit/say"
	"github.com/weftmesh/weft/tools/weft/internal/check/engine"
	"github.com/weftmesh/weft/tools/weft/internal/check/judge"
	"github.com/weftmesh/weft/tools/weft/internal/diag/scrape"
)

// log is the category about the mesh's log of changes: who writes it, and
// whether all who read it are where the writer is.
func (w *World) log() engine.Category {
	const anchor = "weft-watcher-"
	return engine.Category{Name: "weft-watcher", Checks: []engine.Check{
		{Name: "watcher leads", Anchor: anchor + "leads", Retry: true, Run: func(ctx context.Context) error {
			all, err := w.processes(ctx, isWatcher)
			if err != nil {
				return err
			}
			return judge.Leads(all, w.Namespace)
		}},
		{Name: "replicas are in step", Anchor: anchor + "in-step", Retry: true, Run: func(ctx context.Context) error {
			// The writer first: whoever is asked later must have read as far.
			leader, err := w.leader(ctx)
			if err != nil {
				return err
			}
			all, err := w.processes(ctx, readsLog)
			if err != nil {
				return err
			}
			return judge.InStep(leader, all, w.Namespace)
		}},
		{Name: "log is not silent", Anchor: anchor + "heard", Retry: true, Run: func(ctx context.Context) error {
			all, err := w.processes(ctx, readsLog)
			if err != nil {
				return err
			}
			return judge.Heard(all, w.Namespace)
		}},
		{Name: "all objects make sense to the watcher", Anchor: anchor + "skipped", Warning: true, Run: func(ctx context.Context) error {
			leader, err := w.leader(ctx)
			if err != nil {
				return err
			}
			return judge.NothingSkipped(leader)
		}},
		{Name: "history of the log is kept", Anchor: anchor + "history", Warning: true, Retry: true, Run: func(ctx context.Context) error {
			leader, err := w.leader(ctx)
			if err != nil {
				return engine.Skip("no watcher leads") // a check above tells it
			}
			if leader.History == nil {
				return engine.Skip("no history is asked for")
			}
			return judge.HistoryKept(leader, w.Namespace)
		}},
	}}
}

const watcherService = "watcher"

func isWatcher(service string) bool { return service == watcherService }

// readsLog says whether a service keeps a copy of the log.
func readsLog(service string) bool {
	switch service {
	case "destination", "policy", "proxy-injector":
		return true
	}
	return false
}

func (w *World) leader(ctx context.Context) (judge.Process, error) {
	all, err := w.processes(ctx, isWatcher)
	if err != nil {
		return judge.Process{}, err
	}
	for _, p := range all {
		if p.Leader {
			return p, nil
		}
	}
	return judge.Process{}, &say.Problem{
		What: "no watcher leads, so that nobody knows how far the log is",
		Next: fmt.Sprintf("kubectl -n %s logs deploy/%s", w.Namespace, watcher),
	}
}

const componentLabel = "linkerd.io/control-plane-component"

// processes asks the ready pods of some services for their metrics.
func (w *World) processes(ctx context.Context, which func(service string) bool) ([]judge.Process, error) {
	pods, err := w.controlPods(ctx)
	if err != nil {
		return nil, err
	}
	var some []corev1.Pod
	for _, p := range pods {
		if which(p.Labels[componentLabel]) && p.Status.Phase == corev1.PodRunning && p.DeletionTimestamp == nil {
			some = append(some, p)
		}
	}
	return scrape.Each(ctx, some, func(ctx context.Context, p corev1.Pod) judge.Process {
		out := judge.Process{Pod: p.Namespace + "/" + p.Name, Service: p.Labels[componentLabel]}
		targets := scrape.Admin(&p, scrape.NotProxy)
		if len(targets) == 0 {
			out.Err = errors.New("no container port has a name that ends in -admin")
			return out
		}
		body, err := scrape.Get(ctx, w.door, targets[0])
		if err == nil {
			err = readProcess(body, &out)
		}
		out.Err = err
		return out
	}), nil
}

// readProcess takes a process's place in the log from its metrics. A process
// with two clusters' logs is judged by its first: its own.
func readProcess(text []byte, into *judge.Process) error {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(text))
	if err != nil {
		return fmt.Errorf("reading its metrics: %s", strings.ReplaceAll(err.Error(), "\n", " "))
	}
	value := func(name string) float64 { return first(families[name]) }
	into.Connected = value("weft_bus_connected") == 1
	into.Synced = value("weft_bus_synced") == 1
	into.Stale = value("weft_bus_stale") == 1
	into.Age = value("weft_bus_age_seconds")
	into.Epoch, into.Seq = uint64(value("weft_bus_epoch")), uint64(value("weft_bus_seq"))
	into.Leader = value("weft_watcher_leader") == 1
	if up, ok := families["weft_bus_history_up"]; ok {
		into.History = &judge.History{Kept: first(up) == 1, Lost: uint64(value("weft_bus_history_lost_messages_total"))}
	}
	into.Skipped = int(value("weft_watcher_skipped_objects"))
	return nil
}

func first(f *dto.MetricFamily) float64 {
	for _, m := range f.GetMetric() {
		switch {
		case m.GetGauge() != nil:
			return m.GetGauge().GetValue()
		case m.GetUntyped() != nil:
			return m.GetUntyped().GetValue()
		case m.GetCounter() != nil:
			return m.GetCounter().GetValue()
		}
	}
	return 0
}
