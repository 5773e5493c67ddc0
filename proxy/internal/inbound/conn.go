package inbound

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"runtime/debug"
	"slices"
	"strconv"

	"github.com/weftmesh/weft/proxy/internal/allow"
	"github.com/weftmesh/weft/proxy/internal/detect"
	"github.com/weftmesh/weft/proxy/internal/door"
	"github.com/weftmesh/weft/proxy/internal/identity"
	"github.com/weftmesh/weft/proxy/internal/message"
	"github.com/weftmesh/weft/proxy/internal/origdst"
	"github.com/weftmesh/weft/proxy/internal/tell"
	"github.com/weftmesh/weft/proxy/internal/wire"
)

// refusal is why a connection is not carried.
type refusal string

func (r refusal) Error() string { return string(r) }

const (
	errTLSTimeout = refusal("tls detection timeout")
	errForeignIP  = refusal("unexpected target")
	errLoop       = refusal("loop")
)

// refusals are those that inbound_tcp_errors_total knows by their text.
var refusals = []refusal{errTLSTimeout, errCircle, errDomain}

// handle carries one accepted connection to its end, or gives it to an HTTP
// server. release is called exactly once, when the connection is done with.
func (in *Inbound) handle(ctx context.Context, raw *net.TCPConn, release func()) {
	defer in.survive(raw, release)
	target, direct := in.target(raw)
	err := in.admitted(target.Addr())
	if err == nil {
		if direct {
			err = in.direct(ctx, raw, target, release)
		} else {
			err = in.redirected(ctx, raw, target, release)
		}
	}
	if err == nil {
		return // somebody else owns it now, or it has ended well
	}
	_ = raw.Close()
	release()
	if errors.Is(err, detect.ErrClosed) {
		return
	}
	if !errors.Is(err, errDenied) { // which inbound_tcp_authz_deny_total has counted
		in.count(target, err)
	}
	in.log.Info("inbound connection refused", "client", raw.RemoteAddr().String(), "target", target.String(), "error", err)
}

// survive keeps one connection's bug from ending all the others.
func (in *Inbound) survive(raw net.Conn, release func()) {
	if cause := recover(); cause != nil {
		in.log.Error("a connection was given up", "client", raw.RemoteAddr().String(), "panic", cause, "stack", string(debug.Stack()))
		_ = raw.Close()
		release()
	}
}

// target is where the connection was going. It is direct if that is the proxy's
// own inbound port: then only mesh peers may speak, and say what they want.
func (in *Inbound) target(raw *net.TCPConn) (_ netip.AddrPort, direct bool) {
	dst, redirected := in.origDst(raw)
	if !redirected {
		dst = origdst.AddrPort(raw.LocalAddr())
	}
	return dst, !redirected || dst.Port() == in.Addr().Port()
}

func (in *Inbound) admitted(ip netip.Addr) error {
	if ips := in.cfg.Policy.IPs; len(ips) > 0 && !slices.Contains(ips, ip) {
		return fmt.Errorf("%w: %s is not an address of this workload", errForeignIP, ip)
	}
	return nil
}

// redirected serves a connection that the kernel took from its way to the
// application, by the policy of the application's port.
func (in *Inbound) redirected(ctx context.Context, raw *net.TCPConn, target netip.AddrPort, release func()) error {
	p, free, err := in.policies.get(target.Port())
	if err != nil {
		return err
	}
	p.await(ctx)
	done := func() { free(); release() }
	err = in.byPolicy(ctx, raw, target, p, done)
	if err != nil {
		free()
	}
	return err
}

// byPolicy follows the table in spec/proxy.md §10.2. An error leaves the
// connection and done to the caller.
func (in *Inbound) byPolicy(ctx context.Context, raw net.Conn, target netip.AddrPort, p *port, done func()) error {
	client := allow.Client{Addr: origdst.AddrPort(raw.RemoteAddr()).Addr()}
	protocol := p.policy().Protocol
	if protocol == allow.Opaque { // the server may speak first: do not wait for a hello
		return in.tcp(ctx, raw, newSession(client, tell.NoTLS(tell.PortSkipped), target, p), done)
	}
	hello, c, err := detect.TLS(ctx, raw, in.cfg.Inbound.DetectTimeout)
	if errors.Is(err, detect.ErrTimeout) {
		return errTLSTimeout
	}
	if err != nil {
		return err
	}
	labels := tell.NoTLS(tell.NoTLSFromPeer)
	switch hello.SNI {
	case "":
	case in.deps.Identity.ServerName():
		if c, labels, err = in.meshed(ctx, c, &client); err != nil {
			return err
		}
	default:
		client.TLS = allow.Passed
		labels = tell.OpaqueTLS(hello.SNI)
	}
	s := newSession(client, labels, target, p)
	s.from = origdst.AddrPort(raw.RemoteAddr())
	kind, c, err := in.protocol(ctx, c, s, p.policy())
	if err != nil {
		return err
	}
	return in.dispatch(ctx, c, s, kind, done)
}

// protocol decides what the connection carries.
func (in *Inbound) protocol(ctx context.Context, c net.Conn, s *session, policy *allow.Policy) (detect.Kind, net.Conn, error) {
	switch {
	case s.client.TLS == allow.Passed, policy.Protocol == allow.TLS, policy.Protocol == allow.Opaque:
		return detect.Opaque, c, nil // what is inside is not ours to see
	case policy.Protocol == allow.HTTP2, policy.Protocol == allow.GRPC:
		return detect.HTTP2, c, nil
	case policy.Protocol == allow.HTTP1 && s.client.TLS == allow.Plaintext:
		return detect.HTTP1, c, nil
	case policy.Protocol == allow.HTTP1:
		// A mesh peer may have upgraded the requests to HTTP/2.
		kind, c, err := in.detect(ctx, c, s, in.cfg.Inbound.DetectTimeout)
		if kind == detect.Silent {
			kind = detect.HTTP1
		}
		return kind, c, err
	}
	return in.detect(ctx, c, s, policy.Timeout)
}

// dispatch has the connection served in its protocol; done is called when it has
// ended. An error leaves the connection and done to the caller.
func (in *Inbound) dispatch(ctx context.Context, c net.Conn, s *session, kind detect.Kind, done func()) error {
	as := door.HTTP1
	switch kind {
	case detect.HTTP1:
	case detect.HTTP2:
		as = door.HTTP2
	default:
		if s.gateway != "" {
			return in.gatewayTCP(ctx, c, s, done)
		}
		return in.tcp(ctx, c, s, done)
	}
	through := in.stack
	if s.gateway != "" {
		through = in.named
	} else {
		s.app = in.workloadOf(s.target)
	}
	// On a goroutine of its own: this one's stack has grown with the handshake.
	go in.door.Serve(in.source(s).Wrap(c), as, func(c message.Client) { in.carry(c, s, through) }, done)
	return nil
}

// terminate ends the client's TLS here.
func (in *Inbound) terminate(ctx context.Context, c net.Conn) (*tls.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, in.cfg.Inbound.DetectTimeout)
	defer cancel()
	secured := tls.Server(wire.NewBelow(c), in.deps.Identity.ServerTLS())
	if err := secured.HandshakeContext(ctx); err != nil {
		return nil, fmt.Errorf("handshaking with the client: %w", err)
	}
	return secured, nil
}

// meshed ends the TLS of a client that asked for this proxy, and learns who it is.
func (in *Inbound) meshed(ctx context.Context, c net.Conn, client *allow.Client) (net.Conn, tell.Labels, error) {
	secured, err := in.terminate(ctx, c)
	if err != nil {
		return nil, nil, err
	}
	client.TLS, client.ID = allow.Terminated, identity.PeerIdentity(secured.ConnectionState())
	return secured, tell.ClientTLS(client.ID), nil
}

// source is the counter of the client side of a session.
func (in *Inbound) source(s *session) *tell.TCP {
	v := allow.Verdict{Server: s.port.policy().Server}
	return in.deps.Metrics.TCP(s.labels.With("peer", "src").And(verdictLabels(v, s.target.Port())))
}

// count adds to inbound_tcp_errors_total under a label from a bounded set.
func (in *Inbound) count(target netip.AddrPort, err error) {
	label := "unexpected"
	var r refusal
	switch {
	case errors.As(err, &r):
		if slices.Contains(refusals, r) {
			label = string(r)
		}
	case isIO(err):
		label = "i/o"
	}
	in.deps.Metrics.Counter(tell.InboundTCPErrors, tell.Target(target).With("error", label)).Inc()
}

func isIO(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, os.ErrDeadlineExceeded)
}

func portText(n uint16) string { return strconv.Itoa(int(n)) }
