package inbound

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	pb "github.com/linkerd/linkerd2-proxy-api/go/inbound"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/weftmesh/weft/proxy/internal/allow"
	"github.com/weftmesh/weft/proxy/internal/config"
	"github.com/weftmesh/weft/proxy/internal/control"
	"github.com/weftmesh/weft/services/kit/pause"
)

const (
	// maxPorts bounds the watches. A connection to yet another port is refused
	// while all of them are in use: better closed than judged by a default.
	maxPorts = 1024
	// firstAnswer is how long the first connection to a port may wait for the
	// control plane, counted from the start of the port's watch: the default may
	// be more open, or more closed, than the policy that is about to arrive.
	firstAnswer = 500 * time.Millisecond
	// settleBy is how long readiness may wait for the known ports' policies, from
	// the certificate on. An unready pod is no endpoint yet: so a policy replica
	// that lags behind the destination's makes nobody's request meet the default.
	// It is short, for a control plane that is away must not keep pods from
	// starting.
	settleBy = 3 * time.Second
	// refusedAgain is the pause after the policy service has called a request
	// invalid, which asking at once cannot change.
	refusedAgain = time.Minute
)

var (
	errManyPorts = errors.New("too many ports are in use")
	// A watch that never got anything gives up on these (spec/proxy.md §4).
	policyFatal = []codes.Code{codes.InvalidArgument, codes.FailedPrecondition}
)

// policies keeps the current policy of each port: those of INBOUND_PORTS and the
// admin port for ever, others while they are used and a while after. A port
// begins with the default policy, so that nothing waits for a control plane that
// is away, but for firstAnswer.
type policies struct {
	cfg    config.Config
	client pb.InboundServerPoliciesClient
	log    *slog.Logger
	first  time.Duration // firstAnswer, outside tests
	settle time.Duration // settleBy, outside tests

	mu    sync.Mutex
	spawn func(func(context.Context)) context.CancelFunc // starts a watch; set by start
	ports map[uint16]*port
	begun time.Time // when accepting began; zero before
}

func newPolicies(cfg config.Config, conn *grpc.ClientConn, log *slog.Logger) *policies {
	s := &policies{cfg: cfg, log: log, first: firstAnswer, settle: settleBy, ports: make(map[uint16]*port)}
	if conn != nil {
		s.client = pb.NewInboundServerPoliciesClient(conn)
	}
	return s
}

// start watches the known ports until ctx ends.
func (s *policies) start(ctx context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.spawn = func(watch func(context.Context)) context.CancelFunc {
		ctx, cancel := context.WithCancel(ctx)
		go watch(ctx)
		return cancel
	}
	add := func(n uint16) bool {
		if p := s.ports[n]; p != nil {
			p.forever = true
			s.watch(p) // it was asked for before the start
			return true
		}
		if len(s.ports) >= maxPorts {
			s.log.Warn("more inbound ports than can be watched at once, the others are watched when used", "watched", maxPorts)
			return false
		}
		p := s.add(n)
		p.forever = true
		return true
	}
	if len(s.cfg.Policy.Gateway) > 0 {
		add(s.cfg.InboundPort())
	}
	if add(s.cfg.AdminListen.Port()) {
		s.cfg.Policy.Ports.Each(add)
	}
	for _, p := range s.ports {
		s.watch(p)
	}
}

// accepting is called once, before the first connection: what is not known by
// then, because the policy service wants a certificate too, has a little longer.
func (s *policies) accepting() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.begun = time.Now()
	for _, p := range s.ports {
		p.by = s.begun.Add(s.first)
	}
}

// settled reports whether the ports that are watched for ever have their first
// answer, or have waited for it long enough.
func (s *policies) settled() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.begun.IsZero() {
		return false
	}
	if s.client == nil || time.Since(s.begun) >= s.settle {
		return true
	}
	for _, p := range s.ports {
		if p.forever && !p.hasAnswer() {
			return false
		}
	}
	return true
}

// get returns the port's policy, to be released after use.
func (s *policies) get(number uint16) (p *port, release func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p = s.ports[number]
	if p == nil {
		if len(s.ports) >= maxPorts && !s.makeRoom() {
			return nil, nil, errManyPorts
		}
		p = s.add(number)
	}
	p.holders++
	if p.evict != nil {
		p.evict.Stop()
		p.evict = nil
	}
	var once sync.Once
	return p, func() { once.Do(func() { s.release(p) }) }, nil
}

func (s *policies) release(p *port) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p.holders--
	if p.holders > 0 || p.forever {
		return
	}
	var t *time.Timer
	t = time.AfterFunc(s.cfg.Inbound.DiscoveryIdle, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if p.evict == t && p.holders == 0 {
			s.drop(p)
		}
	})
	p.evict = t
}

// makeRoom drops any one port that nobody uses. The lock is held.
func (s *policies) makeRoom() bool {
	for _, p := range s.ports {
		if p.holders == 0 && !p.forever {
			s.drop(p)
			return true
		}
	}
	return false
}

// drop forgets a port and ends its watch. The lock is held.
func (s *policies) drop(p *port) {
	if p.evict != nil {
		p.evict.Stop()
	}
	if p.cancel != nil {
		p.cancel()
	}
	delete(s.ports, p.number)
}

// add makes a port with the default policy. The lock is held.
func (s *policies) add(number uint16) *port {
	p := &port{number: number, heard: make(chan struct{}), by: time.Now().Add(s.first)}
	p.set(allow.Default(s.cfg.Policy.Default, s.cfg.Policy.ClusterNetworks,
		s.cfg.Inbound.DetectTimeout, s.cfg.Policy.OpaquePorts.Contains(number)))
	s.ports[number] = p
	s.watch(p)
	return p
}

// watch keeps the port's policy up to date, once the watches have started. The
// lock is held.
func (s *policies) watch(p *port) {
	if s.spawn == nil || s.client == nil || p.cancel != nil {
		return
	}
	p.cancel = s.spawn(func(ctx context.Context) { s.follow(ctx, p) })
}

func (s *policies) follow(ctx context.Context, p *port) {
	spec := &pb.PortSpec{Workload: s.cfg.Policy.Workload, Port: uint32(p.number)}
	opt := control.Options{Name: "inbound policy", Fatal: policyFatal, Log: s.log}
	if !s.cfg.Policy.Svc.Loopback() {
		opt.Limits = s.cfg.Streams
	}
	for {
		err := control.WatchWith(ctx, opt,
			func(ctx context.Context) (control.Stream[*pb.Server], error) { return s.client.WatchPort(ctx, spec) },
			func(m *pb.Server) { s.update(p, m) })
		if ctx.Err() != nil {
			return
		}
		p.answered()
		s.log.Warn("the policy service refuses to describe a port, the default policy stays", "port", p.number, "error", err)
		pause.For(ctx, refusedAgain)
	}
}

func (s *policies) update(p *port, m *pb.Server) {
	policy, err := allow.Compile(m, s.cfg.Inbound.DetectTimeout)
	if err != nil {
		s.log.Warn("a server policy cannot be read, the port refuses everything", "port", p.number, "error", err)
	}
	p.set(policy)
	p.answered()
}
