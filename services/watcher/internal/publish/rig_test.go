package publish

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weftmesh/weft/bus"
	"github.com/weftmesh/weft/services/watcher/internal/dir"
	"github.com/weftmesh/weft/services/watcher/internal/shape"
	"github.com/weftmesh/weft/services/watcher/internal/source"
)

// world is a source in memory, whose election the test holds.
type world struct {
	mu      sync.Mutex
	objects map[shape.ID]metav1.Object
	trouble source.Trouble
	queue   *source.Queue
	synced  chan struct{}
	terms   chan context.Context
	lost    error
}

func newWorld() *world {
	return &world{objects: make(map[shape.ID]metav1.Object), queue: source.NewQueue(), synced: make(chan struct{}), terms: make(chan context.Context)}
}

func (w *world) Run(ctx context.Context) error                { <-ctx.Done(); return nil }
func (w *world) Changes() *source.Queue                       { return w.queue }
func (w *world) Synced() <-chan struct{}                      { return w.synced }
func (w *world) Derives() bool                                { return false }
func (w *world) List(shape.Kind, string, func(metav1.Object)) {}

func (w *world) Get(id shape.ID) metav1.Object {
	w.mu.Lock()
	defer w.mu.Unlock()
	if obj, ok := w.objects[id]; ok {
		return obj
	}
	return nil
}

func (w *world) Trouble() source.Trouble {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.trouble
}

func (w *world) Elect(ctx context.Context, lead func(context.Context, func() error)) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case term := <-w.terms:
			lead(term, func() error {
				w.mu.Lock()
				defer w.mu.Unlock()
				return w.lost
			})
		}
	}
}

func (w *world) put(yaml string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, it := range dir.Parse([]byte(yaml)).Items {
		w.objects[it.ID] = it.Obj
		w.queue.Add(it.ID, time.Now())
	}
}

func (w *world) remove(kind shape.Kind, name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	id := shape.ID{Kind: kind, Name: name}
	delete(w.objects, id)
	w.queue.Add(id, time.Now())
}

func (w *world) set(change func(*world)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change(w)
}

// diary is a log that writes down what it was given, and fails when told to.
type diary struct {
	mu     sync.Mutex
	lines  []string
	fail   []error
	rows   []bus.Change
	onLead func()
	lost   bool
	heard  time.Time
	ctx    []context.Context
}

func (d *diary) Lead(_ context.Context, truth []bus.Change) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.next(); err != nil {
		d.lines = append(d.lines, "lead failed")
		return err
	}
	d.lines = append(d.lines, "lead"+keys(truth))
	d.lost = false
	if d.onLead != nil {
		d.onLead()
	}
	return nil
}

func (d *diary) Append(ctx context.Context, changes []bus.Change, _ time.Time) (uint64, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.next(); err != nil {
		d.lines = append(d.lines, "append failed")
		return 0, err
	}
	d.ctx = append(d.ctx, ctx)
	d.lines = append(d.lines, "append"+keys(changes))
	return 1, nil
}

func (d *diary) Resign() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lines = append(d.lines, "resign")
}

func (d *diary) Leading() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return !d.lost
}

// raise is another writer's higher epoch, until the next Lead.
func (d *diary) raise() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lost = true
}

func (d *diary) next() error {
	if len(d.fail) == 0 {
		return nil
	}
	err := d.fail[0]
	d.fail = d.fail[1:]
	return err
}

func keys(changes []bus.Change) string {
	var b strings.Builder
	for _, c := range changes {
		sign := " +"
		if c.Value == nil {
			sign = " -"
		}
		b.WriteString(sign + c.Key)
	}
	return b.String()
}

func (d *diary) failNext(errs ...error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fail = errs
}

// read takes what was written since the last time.
func (d *diary) read() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := strings.Join(d.lines, "; ")
	d.lines = nil
	return out
}

func (d *diary) Status() bus.Status {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.heard.IsZero() {
		return bus.Status{Synced: true, Stale: true}
	}
	return bus.Status{Synced: true, HeardAt: d.heard, Stale: time.Since(d.heard) > 3*time.Second}
}

// hear is a beacon of another writer.
func (d *diary) hear() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.heard = time.Now()
}

func (d *diary) All() []bus.Change {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.rows
}

// rig runs a publisher in a bubble of virtual time.
type rig struct {
	t *testing.T
	*world
	*diary
	p   *Publisher
	reg *prometheus.Registry
}

func bubble(t *testing.T, test func(*rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := &rig{t: t, world: newWorld(), diary: new(diary), reg: prometheus.NewRegistry()}
		r.p = New(r.world, r.diary, r.diary, Config{Registry: r.reg, Log: slog.New(slog.DiscardHandler)})
		ctx, cancel := context.WithCancel(t.Context())
		var parts sync.WaitGroup
		parts.Go(func() {
			if err := r.p.Run(ctx); err != nil {
				t.Errorf("Run() = %v", err)
			}
		})
		parts.Go(func() {
			if err := r.p.Elect(ctx); err != nil {
				t.Errorf("Elect() = %v", err)
			}
		})
		defer func() { cancel(); parts.Wait() }()
		test(r)
	})
}

// says waits until everything has come to rest and compares the diary.
func (r *rig) says(want string) {
	r.t.Helper()
	synctest.Wait()
	if got := r.read(); got != want {
		r.t.Errorf("the log was told %q, want %q", got, want)
	}
}

// elected makes the publisher lead until the returned function is called.
func (r *rig) elected() context.CancelFunc {
	r.t.Helper()
	ctx, cancel := context.WithCancel(r.t.Context())
	select {
	case r.terms <- ctx:
	case <-time.After(time.Minute):
		r.t.Fatal("nobody takes part in the election")
	}
	return cancel
}

func namespaces(names ...string) string {
	var b strings.Builder
	for _, n := range names {
		fmt.Fprintf(&b, "---\n{apiVersion: v1, kind: Namespace, metadata: {name: %s}}\n", n)
	}
	return b.String()
}

func annotated(name, value string) string {
	return fmt.Sprintf("{apiVersion: v1, kind: Namespace, metadata: {name: %s, annotations: {linkerd.io/x: %s}}}", name, value)
}

var errAway = errors.New("the bus is away")
