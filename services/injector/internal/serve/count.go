package serve

import (
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weftmesh/weft/services/injector/internal/decide"
)

// counts are Linkerd's two counters, labels included. Linkerd has no bound on
// them: whoever makes pods chooses the values. Here a label tells an
// annotation's value only if it is one of a few words, a namespace's series end
// with the namespace, and what would be more than maxSeries is counted together.
type counts struct {
	requests, responses *prometheus.CounterVec

	mu   sync.Mutex
	seen map[string]struct{} // label values, joined
}

// maxSeries bounds the label sets of each counter; one takes about 5 KB.
const maxSeries = 1000

// configured are the annotations that have a label.
var configured = decide.Configuration()

// Measure registers the counters.
func (a *Admitter) Measure(reg prometheus.Registerer) {
	var labels []string
	for _, name := range configured {
		labels = append(labels, strings.ReplaceAll(name, "-", "_"))
	}
	c := &counts{seen: map[string]struct{}{}}
	c.requests = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "proxy_inject_admission_requests_total",
		Help: "Admission requests, by owner's kind, namespace, where the deciding annotation is, and annotations.",
	}, append([]string{"owner_kind", "namespace", "annotation_at"}, labels...))
	c.responses = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "proxy_inject_admission_responses_total",
		Help: "Answers to admission requests; skip says that no proxy was added, skip_reason why.",
	}, append([]string{"owner_kind", "namespace", "skip", "skip_reason", "annotation_at"}, labels...))
	reg.MustRegister(c.requests, c.responses)
	a.counts = c
}

// owners are the kinds that a metric names; whoever makes a pod may write any.
var owners = [...]string{
	"pod", "service", "replicaset", "deployment", "statefulset", "daemonset", "job", "cronjob", "replicationcontroller",
}

// words are the values of annotations that a metric names.
var words = [...]string{
	"", "true", "false", "enabled", "disabled", "json", "plain", "apache", "off", "insecure",
	"Always", "IfNotPresent", "Never", "all-unauthenticated", "all-authenticated", "cluster-unauthenticated",
	"cluster-authenticated", "deny", "audit",
}

func (c *counts) add(owner, namespace string, v decide.Verdict, annotations map[string]string) {
	if c == nil {
		return
	}
	if !slices.Contains(owners[:], owner) {
		owner = "other"
	}
	set := make([]string, len(configured))
	for i, name := range configured {
		if set[i] = annotations["config.linkerd.io/"+name]; !slices.Contains(words[:], set[i]) {
			set[i] = "set"
		}
	}
	skip, reasons := strconv.FormatBool(!v.Inject()), strings.Join(v.Reasons, ",")
	c.mu.Lock()
	defer c.mu.Unlock()
	key := strings.Join(append([]string{namespace, owner, skip, reasons, v.At}, set...), "\x00")
	if _, there := c.seen[key]; !there {
		if len(c.seen) < maxSeries {
			c.seen[key] = struct{}{}
		} else {
			owner, namespace, set = "other", "other", make([]string, len(configured))
		}
	}
	c.requests.WithLabelValues(append([]string{owner, namespace, v.At}, set...)...).Inc()
	c.responses.WithLabelValues(append([]string{owner, namespace, skip, reasons, v.At}, set...)...).Inc()
}

// Forget ends the series of a namespace that is gone.
func (a *Admitter) Forget(namespace string) {
	c := a.counts
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for key := range c.seen {
		if name, _, _ := strings.Cut(key, "\x00"); name == namespace {
			delete(c.seen, key)
		}
	}
	c.requests.DeletePartialMatch(prometheus.Labels{"namespace": namespace})
	c.responses.DeletePartialMatch(prometheus.Labels{"namespace": namespace})
}
