// Package link reads the logs of linked clusters, so that a Service of another
// cluster is answered from that cluster's own rows.
//
// One copy of a log serves all streams (complaints row G8). A copy whose link is
// down is served on; a cluster that has never been read is unknown, which is not
// empty. When a link's settings change, the old copy answers until the new one
// is complete.
package link

import (
	"context"
	"iter"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weftmesh/weft/bus"
	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
	"github.com/weftmesh/weft/services/destination/internal/feed"
	"github.com/weftmesh/weft/services/destination/internal/serve"
	"github.com/weftmesh/weft/services/destination/internal/table"
	"github.com/weftmesh/weft/services/kit/obs"
	"github.com/weftmesh/weft/services/kit/pause"
)

// Config says where links are described.
type Config struct {
	Dir   string        `help:"directory with a file <cluster>.json for each linked cluster; it is watched; empty means no links"`
	Grace time.Duration `help:"how long answers wait for a linked cluster that has not been read yet; 0 means 10s"`
}

const (
	defaultGrace = 10 * time.Second
	// scanEvery is how often the directory is read. Kubernetes itself takes up to a
	// minute to bring a changed Secret into a pod.
	scanEvery = 2 * time.Second
	// retryAfter is the pause after a log could not be read at all. The bus
	// reconnects by itself; this is for what it calls final.
	retryAfter = 5 * time.Second
)

func (c Config) grace() time.Duration {
	if c.Grace <= 0 {
		return defaultGrace
	}
	return c.Grace
}

// Tables are those that are read of another cluster.
func Tables() []busv1.Table {
	return []busv1.Table{
		busv1.Table_TABLE_CLUSTERS, busv1.Table_TABLE_SERVERS, busv1.Table_TABLE_TEMPLATES,
		busv1.Table_TABLE_SERVICES, busv1.Table_TABLE_WORKLOADS, busv1.Table_TABLE_ENDPOINTS,
	}
}

// Session is one connection to another cluster's log.
type Session interface {
	// Run keeps it connected until ctx is done.
	Run(ctx context.Context) error
	// Read hands out the log, the complete state first.
	Read(ctx context.Context) iter.Seq2[bus.Cut, error]
	// Connected says whether there is a connection to the other bus now.
	Connected() bool
	// Status is where the copy stands.
	Status() bus.Status
}

// Open connects to a log.
type Open func(ctx context.Context, cfg bus.Config) (Session, error)

// Set is all links. Make one with New.
type Set struct {
	cfg   Config
	here  *table.Table
	open  Open
	count *feed.Metrics
	bad   prometheus.Gauge
	began time.Time

	mu   sync.Mutex
	m    map[string]*cluster
	told map[string]string // the last complaint about a link, by its name
}

var _ serve.Clusters = (*Set)(nil)

// cluster is one linked cluster.
type cluster struct {
	since time.Time // when it was linked
	spec  spec
	// now is the copy that answers, nil until one is complete; next is the one that
	// will, nil when it is now.
	now, next *copied
}

// copied is a copy of a log, read with one version of a link's settings.
type copied struct {
	name  string
	spec  spec
	table *table.Table
	stop  context.CancelFunc

	// Guarded by Set.mu.
	trust   string
	session Session // the last one; nil until there was one
	failed  error   // why there is none now
}

// New makes the links of a cluster whose own rows are in here. Nothing is read
// until Run.
func New(cfg Config, here *table.Table, open Open, count *feed.Metrics, reg prometheus.Registerer) *Set {
	s := &Set{
		cfg: cfg, here: here, open: open, count: count, began: time.Now(),
		m: make(map[string]*cluster), told: make(map[string]string),
		bad: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "weft_destination_links_unreadable", Help: "Links whose description can't be read; what was read before stays.",
		}),
	}
	reg.MustRegister(s, s.bad)
	return s
}

// Find implements serve.Clusters.
func (s *Set) Find(name string) (serve.Linked, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.m[name]
	if c == nil {
		return serve.Linked{}, false
	}
	if c.now == nil {
		return serve.Linked{Awaited: time.Since(c.since) < s.cfg.grace()}, true
	}
	return serve.Linked{Table: c.now.table, TrustDomain: c.now.trust}, true
}

// Run follows the directory until ctx is done.
func (s *Set) Run(ctx context.Context) error {
	if s.cfg.Dir == "" {
		<-ctx.Done()
		return context.Cause(ctx)
	}
	var reading sync.WaitGroup
	defer reading.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	tick := time.NewTicker(scanEvery)
	defer tick.Stop()
	for {
		found, bad, err := scan(s.cfg.Dir)
		if err != nil {
			s.tell(ctx, "", err)
		}
		// A directory that can't be read says nothing of its links.
		if found != nil {
			s.complain(ctx, bad)
			for _, c := range s.settle(found, bad) {
				run, stop := context.WithCancel(ctx)
				c.stop = stop
				reading.Go(func() { s.follow(run, c) })
			}
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
}

// settle compares the links with those described. It ends copies that are not
// wanted any more and gives those that have to be begun; their stop is not set.
func (s *Set) settle(found map[string]spec, bad map[string]error) []*copied {
	s.mu.Lock()
	var begin []*copied
	var touched []string
	for name, sp := range found {
		c := s.m[name]
		if c == nil {
			c = &cluster{since: time.Now()}
			s.m[name] = c
			touched = append(touched, name)
		} else if c.spec.sum == sp.sum {
			continue
		}
		if c.next != nil {
			c.next.stop()
		}
		c.spec = sp
		c.next = &copied{name: name, spec: sp, table: table.New(), stop: func() {}}
		begin = append(begin, c.next)
	}
	for name, c := range s.m {
		_, wanted := found[name]
		// What can't be read for the moment is not unlinked.
		if _, unreadable := bad[name]; wanted || unreadable {
			continue
		}
		delete(s.m, name)
		touched = append(touched, name)
		for _, cp := range []*copied{c.now, c.next} {
			if cp != nil {
				cp.stop()
			}
		}
	}
	s.mu.Unlock()
	for _, name := range touched {
		s.here.Touch(table.Linked(name))
	}
	return begin
}

// follow reads one log until ctx is done.
func (s *Set) follow(ctx context.Context, c *copied) {
	for {
		err := s.session(ctx, c)
		if ctx.Err() != nil {
			return
		}
		s.note(c, nil, err)
		slog.WarnContext(ctx, "linked cluster can't be read; trying again", obs.Cluster(c.name), obs.Error(err))
		if !pause.For(ctx, retryAfter) {
			return
		}
	}
}

func (s *Set) session(ctx context.Context, c *copied) error {
	log, err := s.open(ctx, c.spec.bus(s.cfg.Dir, c.name))
	if err != nil {
		return err
	}
	s.note(c, log, nil)
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 2)
	go func() { ended <- log.Run(ctx) }()
	go func() { ended <- feed.New(log, applied{s, c}, s.count).Run(ctx) }()
	err = <-ended
	stop()
	<-ended
	return err
}

// applied is a copy that looks at itself after each cut.
type applied struct {
	set *Set
	c   *copied
}

// Apply implements feed's applier.
func (a applied) Apply(cut bus.Cut) []table.BadRow {
	bad := a.c.table.Apply(cut)
	a.set.look(a.c)
	return bad
}

// look puts a copy in place once it is complete and it is known what identities
// there end in; without that its pods would seem to be without a proxy.
func (s *Set) look(c *copied) {
	trust := c.spec.TrustDomain
	if row := c.table.Cluster(); trust == "" && row != nil {
		trust = row.TrustDomain
	}
	if trust == "" || c.table.Synced() != nil {
		return
	}
	if s.install(c, trust) {
		s.here.Touch(table.Linked(c.name))
	}
}

func (s *Set) install(c *copied, trust string) (changed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	of := s.m[c.name]
	switch {
	case of == nil:
		return false
	case of.now == c:
		changed = c.trust != trust
	case of.next == c:
		if of.now != nil {
			of.now.stop()
		}
		of.now, of.next, changed = c, nil, true
	}
	if changed {
		c.trust = trust
	}
	return changed
}
