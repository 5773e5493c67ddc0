package inbound

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"sync"

	"github.com/weftmesh/weft/proxy/internal/allow"
	"github.com/weftmesh/weft/proxy/internal/tell"
	"github.com/weftmesh/weft/proxy/internal/wire"
)

const (
	errDenied     = refusal("unauthorized")
	errTerminated = refusal("no longer authorized")
)

// tcp forwards bytes both ways while the port's policy allows it. An error
// leaves the connection and done to the caller.
func (in *Inbound) tcp(ctx context.Context, c net.Conn, s *session, done func()) error {
	changed, err := in.admit(s)
	if err != nil {
		return err
	}
	up, err := in.dial(ctx, s)
	if err != nil {
		return fmt.Errorf("connecting to the application: %w", err)
	}
	down, app := in.source(s).Wrap(c), in.toldOf(s.target).Wrap(up)

	in.guard(ctx, s, changed, func() { join(down, app) }, func() { _ = down.Close(); _ = app.Close() })
	done()
	return nil
}

// admit judges a connection, and returns what tells that the policy has changed
// since.
func (in *Inbound) admit(s *session) (<-chan struct{}, error) {
	policy, changed := s.port.current()
	v := policy.TCP(s.client)
	if !v.Allowed {
		in.decided(tell.InboundTCPDeny, s, v)
		return nil, errDenied
	}
	in.decided(tell.InboundTCPAllow, s, v)
	if v.Audited {
		in.log.Info("connection allowed by the audit policy", "client", s.client.Addr.String(), "identity", s.client.ID, "target", s.target.String())
	}
	return changed, nil
}

// guard carries a connection that was admitted, and cuts it when the policy no
// longer allows it or ctx ends. Both ends are cut when it returns.
func (in *Inbound) guard(ctx context.Context, s *session, changed <-chan struct{}, carry, cut func()) {
	ended := make(chan struct{})
	watching := make(chan struct{})
	go func() {
		defer close(watching)
		in.recheck(s, changed, ended, cut)
	}()
	stop := context.AfterFunc(ctx, cut)
	carry()
	stop()
	close(ended)
	<-watching
	cut()
}

// recheck asks the policy again whenever it changes, and cuts the connection
// that is no longer allowed.
func (in *Inbound) recheck(s *session, changed, ended <-chan struct{}, cut func()) {
	for {
		select {
		case <-ended:
			return
		case <-changed:
		}
		var policy *allow.Policy
		policy, changed = s.port.current()
		v := policy.TCP(s.client)
		if v.Allowed {
			continue
		}
		in.decided(tell.InboundTCPTerminate, s, v)
		in.log.Info("connection ended", "client", s.client.Addr.String(), "identity", s.client.ID, "target", s.target.String(), "error", errTerminated)
		cut()
		return
	}
}

// decided counts a decision of a policy.
func (in *Inbound) decided(f tell.Family, s *session, v allow.Verdict, more ...tell.Label) {
	in.deps.Metrics.Counter(f, s.place.And(verdictLabels(v, s.target.Port())).And(more)).Inc()
}

func (in *Inbound) dial(ctx context.Context, s *session) (net.Conn, error) {
	return in.dialApp(ctx, "tcp", s.target.String())
}

// toldOf counts the connections to a target.
func (in *Inbound) toldOf(target netip.AddrPort) *tell.TCP {
	l := tell.Labels{{Name: "direction", Value: "inbound"}, {Name: "peer", Value: "dst"}}
	return in.deps.Metrics.TCP(l.And(tell.Target(target)).And(tell.NoTLS(tell.Loopback)))
}

// halfConn can end one direction.
type halfConn interface {
	net.Conn
	CloseWrite() error
}

// join copies both ways until both directions have ended. An end of one is
// passed on as such; a failure of one ends both.
func join(a, b halfConn) {
	var wg sync.WaitGroup
	wg.Go(func() { pass(a, b) })
	wg.Go(func() { pass(b, a) })
	wg.Wait()
}

func pass(dst, src halfConn) {
	defer wire.Survive(dst, src)
	err := wire.Copy(dst, src)
	if err == nil && dst.CloseWrite() == nil {
		return
	}
	_ = dst.Close()
	_ = src.Close()
}
