// Package kube reads objects from the Kubernetes API: one watch for each kind,
// of objects cut down to what is read before they are kept, and of metadata only
// where that suffices. Secrets are never asked for.
//
// Kinds that come with a CRD may be missing: discovery is asked again from time
// to time, and what is installed later is watched from then on. A question that
// discovery can't answer leaves everything as it is.
package kube

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"

	"github.com/weftmesh/weft/services/watcher/internal/shape"
	"github.com/weftmesh/weft/services/watcher/internal/source"
)

// Clients are the ways of talking to one API server.
type Clients struct {
	Namespaces reads[*corev1.NamespaceList]
	Services   reads[*corev1.ServiceList]
	Pods       reads[*corev1.PodList]
	Slices     reads[*discoveryv1.EndpointSliceList]
	Metadata   metadata.Interface
	Dynamic    dynamic.Interface
	// Writes is for statuses; a client of its own has its own rate.
	Writes    dynamic.Interface
	Discovery resources
	// Leases are those of a namespace, for the election.
	Leases func(namespace string) leases
	// Events writes Kubernetes events.
	Events EventWriter
	// SliceWrites writes EndpointSlices.
	SliceWrites SliceWriter
}

// SliceWriter writes EndpointSlices.
type SliceWriter interface {
	// Create makes one with a generated name, and tells it.
	Create(ctx context.Context, es *discoveryv1.EndpointSlice) (name string, err error)
	// Update is refused if the slice has another version now.
	Update(ctx context.Context, es *discoveryv1.EndpointSlice) error
	Delete(ctx context.Context, namespace, name string) error
}

// EventWriter writes Kubernetes events.
type EventWriter interface {
	Create(ctx context.Context, e *corev1.Event) error
	Patch(ctx context.Context, namespace, name string, patch []byte) error
}

// reads lists and watches one kind of object.
type reads[L runtime.Object] interface {
	List(ctx context.Context, o metav1.ListOptions) (L, error)
	Watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error)
}

// resources tells what a group and version has.
type resources interface {
	Resources(ctx context.Context, groupVersion string) (*metav1.APIResourceList, error)
}

// Config sets up a Source. The zero value is right but for the election.
type Config struct {
	Election Election
	// Rediscover is how often CRDs are looked for; 0 means 30 s. After a failed
	// look the next one comes sooner.
	Rediscover time.Duration
	// Refusal is for how long the API server must refuse a kind before the others
	// go on without it; RBAC rules take a moment to be known. 0 means 15 s.
	Refusal time.Duration
	// Registry gets the metrics; may be nil.
	Registry prometheus.Registerer
	// Log may be nil.
	Log *slog.Logger
}

// Source reads objects from an API server.
type Source struct {
	clients Clients
	cfg     Config
	queue   *source.Queue
	synced  chan struct{}
	errors  *prometheus.CounterVec

	mu sync.RWMutex
	// feeds are what is read now. next are those that will take the place of a
	// feed (another version of a CRD) once they are complete.
	feeds map[shape.Kind]*feed
	next  map[shape.Kind]*feed
}

var _ source.Source = (*Source)(nil)

// New makes a source; Run reads.
func New(clients Clients, cfg Config) *Source {
	if cfg.Rediscover <= 0 {
		cfg.Rediscover = 30 * time.Second
	}
	if cfg.Refusal <= 0 {
		cfg.Refusal = 15 * time.Second
	}
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	s := &Source{
		clients: clients,
		cfg:     cfg,
		queue:   source.NewQueue(),
		synced:  make(chan struct{}),
		feeds:   make(map[shape.Kind]*feed),
		next:    make(map[shape.Kind]*feed),
		errors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "weft_watcher_watch_errors_total",
			Help: "Lists and watches of the Kubernetes API that failed and were begun again, by kind.",
		}, []string{"kind"}),
	}
	for _, k := range shape.Kinds {
		s.errors.WithLabelValues(string(k.Kind))
	}
	if cfg.Registry != nil {
		cfg.Registry.MustRegister(s.errors)
	}
	return s
}

// Run watches until ctx ends.
func (s *Source) Run(ctx context.Context) error {
	defer s.stopAll()
	for _, k := range shape.Kinds {
		if !k.Custom {
			if err := s.start(ctx, k, k.Versions[0]); err != nil {
				return err
			}
		}
	}
	look := time.NewTimer(0)
	defer look.Stop()
	// A feed tells of its being complete through a channel of its own; this is
	// often enough for the few moments in which that matters.
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	found, complete := false, false
	var complained time.Time // since when discovery fails and was complained of
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-look.C:
			again := s.cfg.Rediscover
			if err := s.discover(ctx); err != nil {
				if ctx.Err() != nil {
					return nil
				}
				again = min(again, time.Second)
				if time.Since(complained) > time.Minute {
					complained = time.Now()
					s.cfg.Log.Warn("custom kinds could not be looked up", "error", err, "retry_in", again)
				}
			} else {
				found, complained = true, time.Time{}
			}
			look.Reset(again)
		case <-tick.C:
			s.swap()
			if found && !complete && s.allSynced() {
				complete = true
				close(s.synced)
			}
		}
	}
}

// start begins to watch a kind that isn't watched, or is in another version.
func (s *Source) start(ctx context.Context, info shape.KindInfo, version string) error {
	f, err := s.newFeed(info, version)
	if err != nil {
		return err
	}
	s.mu.Lock()
	if s.feeds[info.Kind] == nil {
		s.feeds[info.Kind] = f
	} else {
		s.next[info.Kind] = f
	}
	s.mu.Unlock()
	f.run(ctx)
	return nil
}

// swap puts complete feeds in the place of those they follow.
func (s *Source) swap() {
	for kind, f := range s.next {
		if !f.synced() {
			continue
		}
		s.mu.Lock()
		old := s.feeds[kind]
		s.feeds[kind] = f
		delete(s.next, kind)
		s.mu.Unlock()
		old.stop()
		s.nameAll(old)
		s.nameAll(f)
		s.cfg.Log.Info("custom kind is read in another version", "kind", string(kind), "version", f.version)
	}
}

// nameAll names every object of a feed as changed.
func (s *Source) nameAll(f *feed) {
	now := time.Now()
	for _, key := range f.informer.GetStore().ListKeys() {
		namespace, name, err := cache.SplitMetaNamespaceKey(key)
		if err == nil {
			s.queue.Add(shape.ID{Kind: f.info.Kind, Namespace: namespace, Name: name}, now)
		}
	}
}

// allSynced: every kind was listed, or is refused for good; a process that may
// read nothing at all knows nothing.
func (s *Source) allSynced() bool {
	one := false
	for _, f := range s.feeds {
		if f.synced() {
			one = true
		} else if r := f.refused.Load(); r == nil || time.Since(r.since) < s.cfg.Refusal {
			return false
		}
	}
	return one
}

func (s *Source) stopAll() {
	for _, f := range s.feeds {
		f.stop()
	}
	for _, f := range s.next {
		f.stop()
	}
}
