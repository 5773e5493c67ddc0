package diag

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"

	"github.com/weftmesh/weft/services/kit/say"
	"github.com/weftmesh/weft/tools/weft/internal/diag/scrape"
	"github.com/weftmesh/weft/tools/weft/internal/usage"
)

const (
	defaultWait = 30 * time.Second
	mostWait    = time.Hour
)

// answer is what one container's metrics page said.
type answer struct {
	pod, container string
	text           []byte
	err            error
}

func proxyMetrics(open connect) *cobra.Command {
	var ns string
	var obfuscate bool
	cmd := &cobra.Command{
		Use:   "proxy-metrics RESOURCE",
		Short: "Print the metrics of a resource's proxies",
		Long: `Print the metrics of the proxies of a pod, a workload, a Service or a namespace, each
under a header that names its pod. --obfuscate hides names: authority, client_id,
server_id, target_addr, dst_service and dst_namespace become short hashes.`,
		Example: "  weft diagnostics proxy-metrics deploy/web -n shop",
		Args:    exactly("RESOURCE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := parse(args[0])
			if err != nil {
				return err
			}
			door, _, err := open(cmd)
			if err != nil {
				return err
			}
			pods, err := podsOf(cmd.Context(), door, ns, r)
			if err != nil {
				return err
			}
			if len(pods) == 0 {
				return &say.Problem{What: args[0] + " has no pods", Next: "see `kubectl -n " + ns + " get pods`"}
			}
			return writeProxies(cmd.OutOrStdout(), ofProxies(cmd.Context(), door, pods), obfuscate)
		},
	}
	cmd.Flags().StringVarP(&ns, "namespace", "n", "default", "namespace of the resource")
	cmd.Flags().BoolVar(&obfuscate, "obfuscate", false, "hide the names of services and clients")
	return cmd
}

// ofProxies asks each pod's proxy, in the order of pods.
func ofProxies(ctx context.Context, d Door, pods []corev1.Pod) []answer {
	ctx, cancel := context.WithTimeout(ctx, defaultWait)
	defer cancel()
	return scrape.Each(ctx, pods, func(ctx context.Context, p corev1.Pod) answer {
		targets := scrape.Admin(&p, func(port string) bool { return port == scrape.ProxyAdmin })
		if len(targets) == 0 {
			return answer{pod: p.Name, err: errors.New("the pod has no port " + scrape.ProxyAdmin + ": it is not meshed")}
		}
		text, err := scrape.Get(ctx, d, targets[0])
		return answer{pod: p.Name, text: text, err: err}
	})
}

func writeProxies(w io.Writer, all []answer, obfuscate bool) error {
	for i, a := range all {
		if obfuscate && a.err == nil {
			a.text, a.err = hide(a.text)
		}
		head := fmt.Sprintf("#\n# POD %s (%d of %d)\n#\n", a.pod, i+1, len(all))
		if a.err != nil {
			head += "# ERROR: " + line(a.err) + "\n"
			a.text = nil
		}
		if err := write(w, head, a.text); err != nil {
			return err
		}
	}
	return nil
}

func controllerMetrics(open connect) *cobra.Command {
	wait := defaultWait
	cmd := &cobra.Command{
		Use:     "controller-metrics",
		Aliases: []string{"cp-metrics"},
		Short:   "Print the metrics of the control plane's containers",
		Args:    exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if wait <= 0 || wait > mostWait {
				return usage.Error(cmd, fmt.Sprintf("--wait %s is not between 0s and %s", wait, mostWait))
			}
			door, ns, err := open(cmd)
			if err != nil {
				return err
			}
			pods, err := listPods(cmd.Context(), door, ns, "")
			if err != nil {
				return err
			}
			all := ofControllers(cmd.Context(), door, pods, wait)
			if len(all) == 0 {
				return &say.Problem{What: "namespace " + ns + " has no control plane", Why: "no pod there has a port whose name ends in -admin", Next: "name another with --linkerd-namespace"}
			}
			return writeControllers(cmd.OutOrStdout(), all)
		},
	}
	cmd.Flags().DurationVarP(&wait, "wait", "w", wait, "how long all of it may take")
	return cmd
}

// ofControllers asks every admin port of pods.
func ofControllers(ctx context.Context, d Door, pods []corev1.Pod, wait time.Duration) []answer {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	var targets []scrape.Target
	for i := range pods {
		targets = append(targets, scrape.Admin(&pods[i], func(string) bool { return true })...)
	}
	all := scrape.Each(ctx, targets, func(ctx context.Context, t scrape.Target) answer {
		text, err := scrape.Get(ctx, d, t)
		return answer{pod: t.Pod, container: t.Container, text: text, err: err}
	})
	slices.SortStableFunc(all, func(a, b answer) int {
		return cmp.Or(strings.Compare(a.pod, b.pod), strings.Compare(a.container, b.container))
	})
	return all
}

func writeControllers(w io.Writer, all []answer) error {
	for i, a := range all {
		head := fmt.Sprintf("#\n# POD %s (%d of %d)\n# CONTAINER %s \n#\n", a.pod, i+1, len(all), a.container)
		if a.err != nil {
			head += "# ERROR " + line(a.err) + "\n"
			a.text = nil
		}
		if err := write(w, head, a.text); err != nil {
			return err
		}
	}
	return nil
}

func write(w io.Writer, head string, text []byte) error {
	if _, err := io.WriteString(w, head); err != nil {
		return fmt.Errorf("writing the answer: %w", err)
	}
	if _, err := w.Write(text); err != nil {
		return fmt.Errorf("writing the answer: %w", err)
	}
	return nil
}

// line keeps an error inside its comment.
func line(err error) string {
	return strings.NewReplacer("\n", " ", "\r", " ").Replace(err.Error())
}

// hidden are the labels whose values tell who talks to whom.
var hidden = []string{"authority", "client_id", "server_id", "target_addr", "dst_service", "dst_namespace"}

// hide replaces what names clients and services by short hashes: equal names
// stay equal, so that series can still be told apart.
func hide(text []byte) ([]byte, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("reading the metrics: %w", err)
	}
	var out bytes.Buffer
	for _, name := range slices.Sorted(maps.Keys(families)) {
		for _, m := range families[name].GetMetric() {
			hideLabels(m.GetLabel())
		}
		if _, err := expfmt.MetricFamilyToText(&out, families[name]); err != nil {
			return nil, fmt.Errorf("writing the metrics: %w", err)
		}
	}
	return out.Bytes(), nil
}

func hideLabels(labels []*dto.LabelPair) {
	for _, l := range labels {
		if slices.Contains(hidden, l.GetName()) {
			sum := sha256.Sum256([]byte(l.GetValue()))
			short := hex.EncodeToString(sum[:4])
			l.Value = &short
		}
	}
}
