package serve

import (
	"slices"
	"sync"
	"sync/atomic"
	"weak"

	"github.com/weftmesh/weft/services/destination/internal/derive"
	"github.com/weftmesh/weft/services/destination/internal/row"
)

// views holds one answer for all streams that ask the same question from the
// same place, and forgets it with the last of them.
type views struct {
	from   origin
	config derive.Config
	count  *metrics

	mu  sync.Mutex
	m   map[viewKey]*view
	all map[question]*answers
}

// question is what is asked, from wherever.
type question struct {
	service, instance string
	port              uint16
}

// answers are those to one question. A new one takes from the newest what is the
// same for every client.
type answers struct {
	refs   int // guarded by views.mu
	newest atomic.Pointer[result]
}

// result is one of them, and what it was made of.
type result struct {
	view  weak.Pointer[derive.View]
	made  version
	plain *row.Service // the Service's row if it was made of it alone
}

// base is an answer to make the next of, nil if there is none.
func (a *answers) base() *derive.View {
	if n := a.newest.Load(); n != nil {
		return n.view.Value()
	}
	return nil
}

// of is the answer for a zone, if it is the newest but for where the client is.
func (a *answers) of(s *row.Service, at uint64, zone string) (n *result, next *derive.View) {
	if n = a.newest.Load(); n == nil || s == nil || n.plain != s || n.made[0].at != at {
		return nil, nil
	}
	if base := n.view.Value(); base != nil {
		next = base.For(zone)
	}
	return n, next
}

// viewKey is a question and who asks. Clients of one zone share an answer; only a Service
// with internalTrafficPolicy: Local has one for each node.
type viewKey struct {
	question
	zone  string
	local bool
	node  string // only if local
}

// view is a shared answer. Its mutex is held while it is made, so that of a
// thousand streams woken by one change the first works and the rest wait.
type view struct {
	key  viewKey
	refs int // guarded by views.mu
	kin  *answers

	mu   sync.Mutex
	made version // of what now was made of
	now  *derive.View
	// plain is as that of a result.
	plain *row.Service
	// The last step that was encoded, for the other streams that take it. It is
	// weak: once they have, a view must not hold a second copy of itself.
	step weak.Pointer[step]
}

// step is the messages from one answer to another.
type step struct {
	from, to *derive.View
	msgs     []encoded
}

func newViews(from origin, c derive.Config, m *metrics) *views {
	return &views{from: from, config: c, count: m, m: make(map[viewKey]*view), all: make(map[question]*answers)}
}

func (vs *views) acquire(key viewKey) *view {
	vs.mu.Lock()
	defer vs.mu.Unlock()
	v := vs.m[key]
	if v == nil {
		kin := vs.all[key.question]
		if kin == nil {
			kin = new(answers)
			vs.all[key.question] = kin
		}
		kin.refs++
		v = &view{key: key, kin: kin}
		vs.m[key] = v
	}
	v.refs++
	return v
}

func (vs *views) release(v *view) {
	vs.mu.Lock()
	defer vs.mu.Unlock()
	if v.refs--; v.refs > 0 {
		return
	}
	delete(vs.m, v.key)
	if v.kin.refs--; v.kin.refs == 0 {
		delete(vs.all, v.key.question)
	}
}

func (vs *views) size() int {
	vs.mu.Lock()
	defer vs.mu.Unlock()
	return len(vs.m)
}

// current is the newest answer. An answer that did not change keeps its
// identity, so a stream that has it need not even compare. The caller follows
// what the Service is made of, which keeps versions meaningful.
func (vs *views) current(v *view) *derive.View {
	v.mu.Lock()
	defer v.mu.Unlock()
	s, at := vs.from.here.Look(v.key.service)
	if s != nil && s == v.plain && at == v.made[0].at {
		return v.now
	}
	if n, next := v.kin.of(s, at, v.key.zone); next != nil {
		v.take(next, n.made, n.plain)
		return v.now
	}
	s = vs.from.here.Service(v.key.service)
	parts := vs.from.parts(v.key.service)
	if v.now != nil && slices.Equal(v.made, parts.version()) {
		return v.now
	}
	members, made := parts.join()
	base := v.kin.base()
	if base == nil {
		base = v.now
	}
	next := vs.config.Endpoints(members,
		derive.Query{Port: v.key.port, Instance: v.key.instance},
		derive.Client{Node: v.key.node, Zone: v.key.zone}, base)
	vs.count.derived.Inc()
	if next.Unusable > 0 {
		vs.count.unusable.Add(float64(next.Unusable))
	}
	if !parts.plain(v.key.service) {
		s = nil
	}
	v.take(next, made, s)
	v.kin.newest.Store(&result{weak.Make(v.now), v.made, v.plain})
	return v.now
}

// take makes an answer the newest of this view, under its identity so far if it
// is no other. The lock is held.
func (v *view) take(next *derive.View, made version, plain *row.Service) {
	if !v.now.Equal(next) {
		v.now = next
	}
	v.made, v.plain = made, plain
}

// updates is the step from what a stream has to an answer of this view, encoded
// once for all streams that take it.
func (v *view) updates(sent, now *derive.View) *step {
	v.mu.Lock()
	defer v.mu.Unlock()
	s := v.step.Value()
	if s == nil || s.from != sent || s.to != now {
		s = &step{sent, now, updates(sent, now)}
		v.step = weak.Make(s)
	}
	return s
}
