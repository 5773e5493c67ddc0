package inbound

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"strings"

	"github.com/weftmesh/weft/proxy/internal/message"
	"github.com/weftmesh/weft/proxy/internal/origproto"
)

// Gateway carries on what a peer of another cluster asks for by name, as the
// outbound side carries what the pod's own application asks for. Names are
// host:port.
type Gateway interface {
	// Known waits until it is known how to reach the name, or that nobody knows.
	Known(ctx context.Context, name string) error
	// HTTP answers a request for the name.
	HTTP(c message.Client, name string, from netip.AddrPort)
	// TCP carries a connection to the name until both have ended. It owns c.
	TCP(c net.Conn, name string) error
}

const (
	errDomain = refusal("gateway domain invalid")
	errCircle = refusal("gateway loop")
)

// codeAborted is gRPC's code of a loop.
const codeAborted = 10

// gateway answers a request that asks for a name (spec/proxy.md §11).
func (in *Inbound) gateway(x *exchange) {
	s := x.session
	own := in.deps.Identity.Name()
	authority := strings.TrimSuffix(s.gateway, ":80")
	switch {
	case s.client.ID == own, forwardedBy(x.req.Fields, own):
		in.fail(x, failure{http.StatusLoopDetected, codeAborted, string(errCircle), true, string(errCircle)})
		return
	case !in.serves(s.gateway), in.deps.Gateway.Known(x.Context(), s.gateway) != nil:
		in.fail(x, failure{http.StatusNotFound, codeNotFound, string(errDomain), false, string(errDomain)})
		return
	}
	out := in.request(x)
	out.Authority = authority
	out.Fields = out.Fields.Clone(2)
	out.Fields.Add("forwarded", "by="+own+";for="+s.client.ID+";host="+authority+";proto=https")
	if out.Version != message.HTTP2 || out.Fields.Has("host") {
		out.Fields.Set("Host", authority)
	}
	c := &through{Client: x.Client, x: x, request: out}
	in.deps.Gateway.HTTP(c, s.gateway, s.from)
}

// serves reports whether the gateway may be asked for the name.
func (in *Inbound) serves(name string) bool {
	host, _, err := net.SplitHostPort(name)
	return err == nil && in.deps.Gateway != nil && in.cfg.Policy.Gateway.Contains(host)
}

// gatewayTCP carries bytes to a name. An error leaves the connection and done to
// the caller.
func (in *Inbound) gatewayTCP(ctx context.Context, c net.Conn, s *session, done func()) error {
	changed, err := in.admit(s)
	if err != nil {
		return err
	}
	switch {
	case s.client.ID == in.deps.Identity.Name():
		return errCircle
	case !in.serves(s.gateway), in.deps.Gateway.Known(ctx, s.gateway) != nil:
		return errDomain
	}
	down := in.source(s).Wrap(c)
	in.guard(ctx, s, changed, func() {
		if err := in.deps.Gateway.TCP(down, s.gateway); err != nil {
			in.log.Info("gateway connection failed", "identity", s.client.ID, "name", s.gateway, "error", err)
		}
	}, func() { _ = down.Close() })
	done()
	return nil
}

// forwardedBy reports whether the request has come through the gateway of that
// identity before (RFC 7239).
func forwardedBy(fields message.Fields, id string) bool {
	for _, f := range fields {
		if !message.Is(f.Name, "forwarded") {
			continue
		}
		for element := range strings.SplitSeq(f.Value, ",") {
			for pair := range strings.SplitSeq(element, ";") {
				if name, by, ok := strings.Cut(strings.TrimSpace(pair), "="); ok && message.Is(name, "by") && strings.Trim(by, `"`) == id {
					return true
				}
			}
		}
	}
	return false
}

// through is the client of a request that the outbound side answers.
type through struct {
	message.Client
	x       *exchange
	request *message.Request
}

// Request is message.Client's.
func (t *through) Request() *message.Request { return t.request }

// Respond is message.Client's.
func (t *through) Respond(res *message.Response) error {
	t.x.end.Status = res.Status
	if t.x.upgraded {
		origproto.Set(&res.Fields, origproto.Proto{Minor: res.Version.Minor()})
	}
	return t.Client.Respond(res)
}

// Tunnel takes the connection over, where the client below can.
func (t *through) Tunnel() (net.Conn, error) {
	if taker, ok := t.Client.(interface{ Tunnel() (net.Conn, error) }); ok {
		return taker.Tunnel()
	}
	return nil, message.ErrAborted
}
