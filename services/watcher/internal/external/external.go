package external

import (
	"context"
	"iter"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weftmesh/weft/bus"
	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
	"github.com/weftmesh/weft/services/watcher/internal/duty"
	"github.com/weftmesh/weft/services/watcher/internal/shape"
	"github.com/weftmesh/weft/services/watcher/internal/source"
)

// Objects shows what there is now.
type Objects interface {
	Synced() <-chan struct{}
	Get(id shape.ID) metav1.Object
	All(kind shape.Kind) iter.Seq[metav1.Object]
	Trouble() source.Trouble
}

// Slices writes EndpointSlices.
type Slices interface {
	Create(ctx context.Context, es *discoveryv1.EndpointSlice) (name string, err error)
	Update(ctx context.Context, es *discoveryv1.EndpointSlice) error
	Delete(ctx context.Context, namespace, name string) error
}

// Config sets up a Controller. The zero value is right but for Term.
type Config struct {
	// Term is the leadership under which this process may write.
	Term func() (ctx context.Context, check func() error, ok bool)
	// Every is how often everything is looked at without a cause; 0 means 10 s.
	Every time.Duration
	// Debounce is how long causes are collected; 0 means 100 ms.
	Debounce time.Duration
	Registry prometheus.Registerer
	Log      *slog.Logger
}

// Controller looks and writes. Run's goroutine owns it, but for rounds.
type Controller struct {
	objects Objects
	writer  Slices
	cfg     Config
	rounds  *duty.Rounds
	waiting map[shape.ID]*wait
	refused duty.Complaint
	writes  *prometheus.CounterVec
}

// New makes a controller.
func New(objects Objects, writer Slices, cfg Config) *Controller {
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	c := &Controller{
		objects: objects, writer: writer, cfg: cfg, rounds: duty.NewRounds(cfg.Every, cfg.Debounce), waiting: make(map[shape.ID]*wait),
		refused: duty.Complaint{
			Log: cfg.Log, What: "the slices of external workloads could not be written", Right: "create, update and delete endpointslices",
		},
		writes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "weft_watcher_external_slices_total",
			Help: "EndpointSlices of external workloads that were written, by what was done and whether the API server took it.",
		}, []string{"done", "result"}),
	}
	for _, done := range []string{doneCreated, doneUpdated, doneDeleted} {
		c.writes.WithLabelValues(done, "ok")
		c.writes.WithLabelValues(done, "failed")
	}
	if cfg.Registry != nil {
		cfg.Registry.MustRegister(c.writes)
	}
	return c
}

// Wrote says which rows the log has taken. It never blocks.
func (c *Controller) Wrote(changes []bus.Change) {
	for _, change := range changes {
		id, ok := shape.Maker(change.Table, change.Key)
		if ok && (id.Kind == shape.ExternalWorkloads || id.Kind == shape.Service) || change.Table == busv1.Table_TABLE_TEMPLATES {
			c.rounds.Again()
			return
		}
	}
}

// Run works until ctx ends.
func (c *Controller) Run(ctx context.Context) error {
	select {
	case <-c.objects.Synced():
	case <-ctx.Done():
		return nil
	}
	c.rounds.Run(ctx, c.round)
	return nil
}

// round looks at every Service that has external workloads beside it, or slices of
// ours.
func (c *Controller) round(ctx context.Context) {
	leading, check, ok := c.cfg.Term()
	if !ok {
		clear(c.waiting)
		return
	}
	trouble := c.objects.Trouble()
	if trouble.Hides(shape.ExternalWorkloads) || trouble.Hides(shape.Service) || trouble.Hides(shape.EndpointSlice) {
		return // unknown is not gone
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(leading, cancel)()
	w := c.look()
	for id := range c.waiting {
		if _, still := w.services[id]; !still {
			delete(c.waiting, id)
		}
	}
	for id, service := range w.services {
		if ctx.Err() != nil || !c.due(id, time.Now()) {
			continue
		}
		plan := Decide(service, w.workloads[id.Namespace], w.unknown[id.Namespace], w.slices[id])
		if !plan.Empty() {
			c.carryOut(ctx, check, id, plan)
		} else {
			delete(c.waiting, id)
		}
	}
}

// sight is what there is, by namespace and by Service.
type sight struct {
	workloads map[string][]*shape.ExternalWorkload
	unknown   map[string]map[string]bool
	slices    map[shape.ID][]*discoveryv1.EndpointSlice
	// services are those to look at; nil is one that is gone.
	services map[shape.ID]*corev1.Service
}

func (c *Controller) look() sight {
	w := sight{
		workloads: make(map[string][]*shape.ExternalWorkload), unknown: make(map[string]map[string]bool),
		slices: make(map[shape.ID][]*discoveryv1.EndpointSlice), services: make(map[shape.ID]*corev1.Service),
	}
	for obj := range c.objects.All(shape.ExternalWorkloads) {
		ns := obj.GetNamespace()
		if e, ok := obj.(*shape.ExternalWorkload); ok {
			w.workloads[ns] = append(w.workloads[ns], e)
			continue
		}
		if w.unknown[ns] == nil {
			w.unknown[ns] = make(map[string]bool)
		}
		w.unknown[ns][obj.GetName()] = true
	}
	for obj := range c.objects.All(shape.EndpointSlice) {
		if es, ok := obj.(*discoveryv1.EndpointSlice); ok && Manages(es) {
			id := shape.ID{Kind: shape.Service, Namespace: es.Namespace, Name: shape.ServiceOf(es)}
			w.slices[id] = append(w.slices[id], es)
			w.services[id] = nil
		}
	}
	if len(w.workloads)+len(w.services) == 0 {
		return w
	}
	for obj := range c.objects.All(shape.Service) {
		s, ok := obj.(*corev1.Service)
		id := shape.IDOf(shape.Service, obj)
		_, ours := w.services[id]
		if ok && (ours || len(w.workloads[s.Namespace]) > 0 && wanted(s)) {
			w.services[id] = s
		}
	}
	return w
}
