package inbound

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/weftmesh/weft/proxy/internal/allow"
	"github.com/weftmesh/weft/proxy/internal/detect"
	"github.com/weftmesh/weft/proxy/internal/header"
	"github.com/weftmesh/weft/proxy/internal/identity"
	"github.com/weftmesh/weft/proxy/internal/origdst"
	"github.com/weftmesh/weft/proxy/internal/tell"
)

const (
	errNotMutual = refusal("direct connections must be mutually authenticated")
	errNoHeader  = refusal("direct connections require transport header negotiation")
)

// direct serves a connection made to the inbound port itself: a mesh peer that
// names the port it means in a transport header. Everything else is refused.
func (in *Inbound) direct(ctx context.Context, raw *net.TCPConn, local netip.AddrPort, release func()) error {
	deadline := time.Now().Add(in.cfg.Inbound.DetectTimeout)
	hello, c, err := detect.TLS(ctx, raw, in.cfg.Inbound.DetectTimeout)
	switch {
	case errors.Is(err, detect.ErrTimeout):
		return errTLSTimeout
	case err != nil:
		return err
	case hello.SNI != in.deps.Identity.ServerName():
		return errNotMutual
	}
	secured, err := in.terminate(ctx, c)
	if err != nil {
		return err
	}
	state := secured.ConnectionState()
	id := identity.PeerIdentity(state)
	switch {
	case id == "":
		return errNotMutual
	case state.NegotiatedProtocol != header.ALPN:
		return errNoHeader
	}
	if err := secured.SetReadDeadline(deadline); err != nil {
		return err
	}
	h, err := header.Read(secured)
	if err != nil {
		return err
	}
	if err := secured.SetReadDeadline(time.Time{}); err != nil {
		return err
	}
	in.countHeader(h, id)
	target, name := netip.AddrPortFrom(local.Addr(), h.Port), ""
	if h.Name != "" { // the policy of this port is the gateway's
		target, name = local, net.JoinHostPort(strings.TrimSuffix(h.Name, "."), portText(h.Port))
	} else if in.loops(target) {
		return errLoop
	}

	p, free, err := in.policies.get(target.Port())
	if err != nil {
		return err
	}
	p.await(ctx)
	client := allow.Client{Addr: origdst.AddrPort(raw.RemoteAddr()).Addr(), TLS: allow.Terminated, ID: id}
	s := newSession(client, tell.ClientTLS(id), target, p)
	s.from, s.gateway = origdst.AddrPort(raw.RemoteAddr()), name
	kind := detect.Opaque
	switch h.Session {
	case header.HTTP1:
		kind = detect.HTTP1
	case header.HTTP2:
		kind = detect.HTTP2
	}
	err = in.dispatch(ctx, secured, s, kind, func() { free(); release() })
	if err != nil {
		free()
	}
	return err
}

// loops reports whether forwarding to the address would come back to this proxy.
func (in *Inbound) loops(target netip.AddrPort) bool {
	if target.Port() == in.Addr().Port() {
		return true
	}
	for _, l := range in.cfg.Outbound.Listen {
		if l.Port() == target.Port() && (l.Addr().IsUnspecified() || l.Addr().Unmap() == target.Addr()) {
			return true
		}
	}
	return false
}

func (in *Inbound) countHeader(h header.Header, id string) {
	in.deps.Metrics.Counter(tell.InboundHeaders, tell.Labels{
		{Name: "session_protocol", Value: h.Session.String()},
		{Name: "target_port", Value: portText(h.Port)},
		{Name: "target_name", Value: h.Name},
		{Name: "client_id", Value: id},
	}).Inc()
}

// detect finds HTTP out and counts the result.
func (in *Inbound) detect(ctx context.Context, c net.Conn, s *session, timeout time.Duration) (detect.Kind, net.Conn, error) {
	began := time.Now()
	kind, c, err := detect.HTTP(ctx, c, timeout)
	result := kind.String()
	if err != nil {
		result = "error"
	}
	s.port.detections(in.deps.Metrics).Found(result, time.Since(began))
	return kind, c, err
}
