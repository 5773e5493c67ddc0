package bus

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
)

// ReaderConfig sets up a Reader; the zero value is right for production.
type ReaderConfig struct {
	// Now is the clock; nil means time.Now.
	Now func() time.Time
	// Registry gets the metrics; nil means the transport's.
	Registry prometheus.Registerer
	// Silence is how long the writer may stay unheard before the copy is stale;
	// 0 means 3 s.
	Silence time.Duration
	// Tables are the only ones whose rows are kept, compared with the writer's
	// and handed out; empty means all. Memory then follows the size of these
	// tables alone. Such a reader answers no other peer, since it has not what
	// others ask for, and no writer leads with it.
	Tables []busv1.Table
}

// The writer sends a beacon each second: three missed ones are no chance.
const defaultSilence = 3 * time.Second

var (
	// ErrNotSynced means that no complete state has been read yet.
	ErrNotSynced = errors.New("the log has not been read completely yet")
	// ErrConsumer means that the reader has a consumer already.
	ErrConsumer = errors.New("the log's reader has one consumer already")
)

// Reader holds a copy of the log, repairs it, and answers others from it. One
// Run, one consumer in Read; everything else may be called by anybody.
type Reader struct {
	t       Transport
	names   subjects
	cfg     ReaderConfig
	store   *store
	in      *inbox
	metrics *metrics
	server  *server

	// heardAt is when the writer, or a peer that heard it, last spoke: Unix
	// nanoseconds, 0 for never.
	heardAt atomic.Int64
	// newest is the newest position seen in any header.
	newest atomic.Pointer[position]
	lag    atomic.Int64

	run running
}

// NewReader makes a reader of the transport's cluster. Nothing happens until Run.
func NewReader(t Transport, cfg ReaderConfig) *Reader {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Silence <= 0 {
		cfg.Silence = defaultSilence
	}
	r := &Reader{
		t: t, names: subjectsOf(t), cfg: cfg, store: newStore(onlyOf(cfg.Tables)), in: newInbox(),
		metrics: newMetrics(registererOf(t, cfg.Registry), t.Cluster()),
	}
	r.newest.Store(&position{})
	r.server = newServer(r)
	return r
}

// Read hands out the log: first the complete state, then what changed. One
// consumer at a time. A consumer that is slow gets merged cuts; it never delays
// Run or anybody else. The sequence ends with ctx's error.
func (r *Reader) Read(ctx context.Context) iter.Seq2[Cut, error] {
	return func(yield func(Cut, error) bool) {
		if !r.store.out.attach() {
			yield(Cut{}, ErrConsumer)
			return
		}
		defer r.store.out.detach()
		for {
			for ctx.Err() == nil {

				cut, ok := r.store.next()
				if !ok {
					break
				}
				if !yield(cut, nil) {
					return
				}
			}
			select {
			case <-ctx.Done():
				yield(Cut{}, fmt.Errorf("reading the log: %w", context.Cause(ctx)))
				return
			case <-r.store.out.ready:
			}
		}
	}
}

// Status is where a reader stands.
type Status struct {
	// Synced: a complete state has been read; it stays so.
	Synced     bool
	Epoch, Seq uint64
	// HeardAt is when the writer last spoke, as far as is known here.
	HeardAt time.Time
	// Stale: HeardAt is longer ago than the limit. What is held is served on.
	Stale bool
	// Age is how old a stale copy is; 0 while it is live.
	Age time.Duration
	// Lag is how long the last change took from the source to here.
	Lag time.Duration
}

// Status tells where the reader stands.
func (r *Reader) Status() Status {
	r.store.mu.Lock()
	st := Status{Synced: r.store.synced, Epoch: r.store.pos.epoch, Seq: r.store.pos.seq}
	r.store.mu.Unlock()
	st.Lag = time.Duration(r.lag.Load())
	if at := r.heardAt.Load(); at != 0 {
		st.HeardAt = time.Unix(0, at)
	}
	st.Age = r.age()
	st.Stale = st.Age > 0 || st.HeardAt.IsZero()
	return st
}

// age is how long the writer has been silent, 0 within the limit.
func (r *Reader) age() time.Duration {
	at := r.heardAt.Load()
	if at == 0 {
		return 0
	}
	if age := r.cfg.Now().Sub(time.Unix(0, at)); age > r.cfg.Silence {
		return age
	}
	return 0
}

// sinceHeard is how long ago the writer spoke, within the limit or not: what a
// peer is told must not make it believe in a younger copy, or two peers keep
// each other live for ever.
func (r *Reader) sinceHeard() time.Duration {
	return max(0, r.cfg.Now().Sub(time.Unix(0, r.heardAt.Load())))
}

// Synced is nil once a complete state has been read, for a readiness check. A
// stale copy is still ready: it serves what it has and says how old it is.
func (r *Reader) Synced() error {
	r.store.mu.Lock()
	defer r.store.mu.Unlock()
	if !r.store.synced {
		return ErrNotSynced
	}
	return nil
}

// Rows gives one table's rows, ordered by key.
func (r *Reader) Rows(table busv1.Table) []Change {
	r.store.mu.Lock()
	var at []rowAt
	if t := r.store.tables[table]; t != nil {
		at = make([]rowAt, 0, len(t.byKey))
		for key, row := range t.byKey {
			at = append(at, rowAt{table, key, row.in})
		}
	}
	r.store.mu.Unlock()
	return r.store.changesOf(at)
}

// All gives every row, in the order of Tables, then by key.
func (r *Reader) All() []Change {
	r.store.mu.Lock()
	at := r.store.rowsAt()
	r.store.mu.Unlock()
	return r.store.changesOf(at)
}

// Row gives one row's value. It may have to unpack a block of others for it.
func (r *Reader) Row(table busv1.Table, key string) (value []byte, ok bool) {
	r.store.mu.Lock()
	row := r.store.row(table, key)
	if row == nil {
		r.store.mu.Unlock()
		return nil, false
	}
	at := rowAt{table, key, row.in}
	r.store.mu.Unlock()
	for _, c := range r.store.changesOf([]rowAt{at}) {
		return c.Value, true
	}
	return nil, false
}

// leads says whether this process's writer holds the log. Another writer's
// higher epoch deposes it as soon as it is heard. store.mu is held.
func (r *Reader) leads() bool {
	s := r.store
	return s.leading != 0 && s.leading == s.pos.epoch && r.heard().epoch <= s.leading
}

// heard is the newest position seen on the bus, applied or not.
func (r *Reader) heard() position { return *r.newest.Load() }

// saw notes a position; only ever forward.
func (r *Reader) saw(at position) {
	for {
		old := r.newest.Load()
		if !old.before(at) || r.newest.CompareAndSwap(old, &at) {
			return
		}
	}
}
