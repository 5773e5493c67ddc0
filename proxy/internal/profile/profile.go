// Package profile knows what the ServiceProfiles of this workload's services say
// of the requests that come in (spec/proxy.md §10.4): under which route they are
// counted, which answers are failures, and how long they may take. Profiles of
// names that requests are for are followed while there are such requests.
package profile

import (
	"context"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weftmesh/weft/proxy/internal/message"
	"github.com/weftmesh/weft/proxy/internal/resolve"
	"github.com/weftmesh/weft/proxy/internal/tell"
)

// canonical is the name that a peer's proxy has found a request to be for.
const canonical = "l5d-dst-canonical"

// maxNames bounds the names that are known at once: clients make them up. What is
// beyond has no profile.
const maxNames = 1000

// A Source says what a name's profile is, again and again until ctx ends.
type Source interface {
	Profile(ctx context.Context, to resolve.Target, each func(*resolve.Profile)) error
}

// Profiles are those in use. Run must be running.
type Profiles struct {
	source Source
	m      *tell.Metrics
	wait   time.Duration // for a name's first profile
	idle   time.Duration // how long one is followed that nobody asks for
	log    *slog.Logger

	last  atomic.Pointer[name] // that was found last: mostly there is one; set with mu held
	mu    sync.RWMutex
	names map[string]*name // by authority, as clients write it
	life  context.Context  // set by Run
}

type name struct {
	routes atomic.Pointer[[]*Route]
	first  chan struct{} // closed when the profile is known, or will not be
	once   sync.Once
	used   atomic.Bool // since the last sweep
	since  time.Time   // when a sweep found it used; guarded by Profiles.mu
	cancel context.CancelFunc

	authority string
}

// New returns profiles that know nothing yet.
func New(source Source, m *tell.Metrics, wait, idle time.Duration, log *slog.Logger) *Profiles {
	return &Profiles{source: source, m: m, wait: wait, idle: idle, log: log, names: map[string]*name{}}
}

// Run follows profiles until ctx ends.
func (p *Profiles) Run(ctx context.Context) error {
	p.mu.Lock()
	p.life = ctx
	p.mu.Unlock()
	tick := time.NewTicker(max(p.idle/4, time.Second))
	defer tick.Stop()
	for {
		select {
		case now := <-tick.C:
			p.sweep(now)
		case <-ctx.Done():
			return nil
		}
	}
}

// sweep forgets what nobody has asked for.
func (p *Profiles) sweep(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for key, n := range p.names {
		if n.used.Swap(false) {
			n.since = now
		}
		if now.Sub(n.since) > p.idle {
			n.cancel()
			delete(p.names, key)
			p.last.CompareAndSwap(n, nil)
		}
	}
}

// Route is the route of a request; nil if its name has no profile, or none that is
// known in time. A nil Profiles knows no routes.
func (p *Profiles) Route(ctx context.Context, r *message.Request) *Route {
	if p == nil {
		return nil
	}
	authority := r.Fields.Get(canonical)
	if authority == "" {
		authority = r.Authority
	}
	n := p.name(authority)
	if n == nil {
		return nil
	}
	if !n.used.Load() {
		n.used.Store(true)
	}
	routes := n.routes.Load()
	if routes == nil {
		routes = n.await(ctx, p.wait)
	}
	if routes == nil {
		return nil
	}
	for _, route := range *routes {
		if route.rule.Condition == nil || route.rule.Condition.Takes(r) {
			return route
		}
	}
	return nil
}

// await waits for the first profile.
func (n *name) await(ctx context.Context, d time.Duration) *[]*Route {
	select {
	case <-n.first:
		return n.routes.Load()
	default:
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-n.first:
	case <-ctx.Done():
	case <-t.C:
		n.known() // nobody waits again
	}
	return n.routes.Load()
}

func (n *name) known() { n.once.Do(func() { close(n.first) }) }

// name finds what is known of an authority, and begins to follow it; nil if there
// cannot be a profile.
func (p *Profiles) name(authority string) *name {
	n := p.last.Load()
	if n != nil && n.authority == authority {
		return n
	}
	p.mu.RLock()
	if n = p.names[authority]; n != nil {
		p.last.Store(n)
	}
	p.mu.RUnlock()
	if n != nil {
		return n
	}
	to, ok := target(authority)
	if !ok {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := p.names[authority]; n != nil {
		return n
	}
	if len(p.names) >= maxNames || p.life == nil {
		return nil
	}
	ctx, cancel := context.WithCancel(p.life)
	// Heads are borrowed.
	n = &name{first: make(chan struct{}), cancel: cancel, since: time.Now(), authority: strings.Clone(authority)}
	p.names[n.authority] = n
	go p.follow(ctx, to, n)
	return n
}

func (p *Profiles) follow(ctx context.Context, to resolve.Target, n *name) {
	err := p.source.Profile(ctx, to, func(profile *resolve.Profile) {
		n.routes.Store(p.bind(profile, to))
		n.known()
	})
	n.known()
	if err != nil && ctx.Err() == nil {
		p.log.Debug("no profile", "name", to.String(), "error", err)
	}
}

// bind makes the routes of a profile, each with what counts it, and one for the
// rest.
func (p *Profiles) bind(profile *resolve.Profile, to resolve.Target) *[]*Route {
	if profile == nil || profile.Name == "" || len(profile.Routes) == 0 {
		return nil
	}
	s := to.String()
	dst := profile.Name + s[strings.LastIndexByte(s, ':'):]
	var out []*Route
	for i := range profile.Routes {
		out = append(out, newRoute(p.m, dst, &profile.Routes[i]))
	}
	out = append(out, newRoute(p.m, dst, &resolve.ProfileRule{}))
	return &out
}

// target reads an authority; addresses have no profile.
func target(authority string) (resolve.Target, bool) {
	host, port, err := net.SplitHostPort(authority)
	if err != nil {
		host, port = authority, "80"
	}
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	if host == "" || len(host) > 253 || strings.ContainsAny(host, ":/ []") {
		return resolve.Target{}, false
	}
	if _, err := netip.ParseAddr(host); err == nil {
		return resolve.Target{}, false
	}
	return resolve.Target{Authority: host + ":" + port}, true
}
