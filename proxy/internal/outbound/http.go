package outbound

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/weftmesh/weft/proxy/internal/config"
	"github.com/weftmesh/weft/proxy/internal/door"
	"github.com/weftmesh/weft/proxy/internal/explicit"
	"github.com/weftmesh/weft/proxy/internal/h2"
	"github.com/weftmesh/weft/proxy/internal/message"
	"github.com/weftmesh/weft/proxy/internal/mirror"
	"github.com/weftmesh/weft/proxy/internal/relay"
	"github.com/weftmesh/weft/proxy/internal/resolve"
	"github.com/weftmesh/weft/proxy/internal/spare"
	"github.com/weftmesh/weft/proxy/internal/tell"
)

// client is the connection that a request came on.
type client struct {
	target   *target // nil if each request says where it goes
	addr     netip.AddrPort
	explicit bool // it speaks to the proxy on purpose
	release  func()

	// What an HTTP/1 connection that is explicit has asked for last: mostly it asks for
	// that again. Its requests come one after the other.
	last *slot[*target]
	word string // for it; "" for none
}

// hand has a connection served as HTTP, on a goroutine of its own, which closes it
// and releases the client when it is done.
func (o *Outbound) hand(conn net.Conn, c *client) {
	go o.door.Serve(conn, door.Either, func(m message.Client) { o.handle(m, c) }, c.release)
}

// newDoor serves HTTP as a transparent proxy does: it adds no timeout that the
// application did not ask for (complaint E5).
func (o *Outbound) newDoor(cfg config.Config) *door.Door {
	s := cfg.Outbound.Server
	windows := s.Windows
	if windows.Conn == 0 {
		windows = cfg.HTTP2
	}
	return door.New(door.Config{
		HTTP2: h2.Config{
			StreamWindow: windows.Stream, ConnWindow: windows.Conn,
			MaxFrame: s.MaxFrameSize, MaxStreams: s.MaxConcurrentStreams, MaxList: s.MaxHeaderListSize,
			KeepaliveInterval: s.KeepaliveInterval, KeepaliveTimeout: s.KeepaliveTimeout,
			MaxAge: s.MaxConnectionAge,
		},
		Log: o.log,
	})
}

// exchange is one request of a client.
type exchange struct {
	message.Client
	o         *Outbound
	r         *message.Request
	client    *client
	stack     *stack
	rule      *rule
	retry     *resolve.Retry    // of the rule, or what the request's headers say
	limits    *resolve.Timeouts // likewise
	quiet     *quiet            // nil without an idle timeout
	sticky    *sticky           // nil without sessions
	copies    *mirror.Tee       // nil if there is no body to copy
	authority string
	grpc      bool
	body      *relay.Replay // nil if there is none
	guard     relay.Guard   // ends what is under way when the client goes or time is up
	pool      *pool         // of the last attempt
	began     time.Duration // since the proxy's start, as all times of requests
	frames    sized         // the request's body
	from      *routeTell    // the backend of the last attempt
	moving    bool          // the next attempt is the last one's, elsewhere
	tries     int
	timed     bool // timers know of it
	waited    bool // for the policy
	whole     bool // it has ended as it should, and nobody else knows of it
	kept      kept
}

// kept is memory of the exchange that is used again.
type kept struct {
	hint func(*message.Response) error
	out  message.Request // of the first try
	try  try             // the first
}

// exchanges are used again: a request costs no memory.
var exchanges = spare.Pool[exchange]{Small: true, Make: func() *exchange {
	x := new(exchange)
	x.kept.hint = x.hint
	return x
}}

// maxFields is how many fields a kept exchange has room for at most.
const maxFields = 128

// free gives the exchange's memory back. One that did not end as it should is left
// to the collector: a timer or a try of before may still know of it.
func (x *exchange) free() {
	if !x.whole || x.timed {
		return
	}
	x.kept.try.lease.Free()
	hint, fields := x.kept.hint, x.kept.out.Fields
	if cap(fields) > maxFields {
		fields = nil
	}
	fields.Forget()
	*x = exchange{}
	x.kept.hint, x.kept.out.Fields = hint, fields[:0]
	exchanges.Put(x)
}

// handle carries one request.
func (o *Outbound) handle(m message.Client, c *client) {
	r := m.Request()
	x := exchanges.Get()
	x.Client, x.o, x.r, x.client, x.began, x.grpc = m, o, r, c, o.since(), r.GRPC()
	defer x.free()
	t, at, err := x.target()
	if err != nil {
		x.fail(err)
		return
	}
	if at != nil {
		defer o.targets.release(at)
	}
	if c.explicit && r.Method == "CONNECT" {
		x.connect(t)
		return
	}
	x.authority = r.Authority
	if x.authority == "" {
		x.authority = t.to.String()
	}
	if x.stack = t.stack.Load(); x.stack == nil {
		x.waited = true
		x.stack, err = t.now(x.Context())
	}
	defer x.trace().end()
	if err == nil {
		err = x.serve()
	}
	if err != nil {
		x.fail(err)
	}
}

// target is where the request goes: where its connection does, or where it says.
// What it holds is to be released; nil is nothing.
func (x *exchange) target() (*target, *slot[*target], error) {
	c, r := x.client, x.r
	if x.o.deps.Config.Ingress {
		if override := r.Fields.Get("l5d-dst-override"); override != "" {
			to, err := explicit.Authority(override, 80)
			if err != nil {
				return nil, nil, err
			}
			r.Fields.Del("l5d-dst-override")
			return x.o.hold(to, to.String())
		}
	}
	if c.target != nil {
		return c.target, nil, nil
	}
	if r.Method == "CONNECT" && r.Version == message.HTTP2 {
		return nil, nil, errConnect2
	}
	return x.o.asked(c, r)
}

// serve routes the request and answers it, or returns why not.
func (x *exchange) serve() error {
	if x.stack.policy.Protocol == resolve.Invalid {
		return errInvalid
	}
	limit := int64(x.o.deps.Config.Outbound.MaxInFlight)
	defer x.stack.inflight.Add(-1)
	if n := x.stack.inflight.Add(1); limit > 0 && n > limit {
		return errLimit
	}
	routes := x.stack.http1
	if x.r.Version == message.HTTP2 {
		routes = x.stack.http2
	}
	_, found := resolve.Select(routes, hostOnly(x.authority), x.r)
	if found == nil {
		return errNoRoute
	}
	x.rule = x.stack.rules[found]
	x.retry, x.limits = &found.Retry, &found.Timeouts
	if found.AllowHeaders {
		x.override()
	}
	x.sticky = newSticky(found.Session, x.r)
	return x.send()
}

// gone reports whether the client has left.
func (x *exchange) gone() bool { return errors.Is(x.guard.Err(), message.ErrGone) }

// fail answers with an error, and counts it.
func (x *exchange) fail(err error) {
	if x.gone() || errors.Is(err, message.ErrGone) || errors.Is(err, context.Canceled) && x.Context().Err() != nil {
		x.Break(message.ErrGone) // nobody listens
		return
	}
	f := x.faultOf(err)
	if f.label != "" {
		x.o.deps.Metrics.Counter(tell.OutboundHTTPErrors, tell.Labels{{Name: "error", Value: f.label}}).Inc()
	}
	if f.status >= 500 {
		x.o.log.Info("request failed", "method", x.r.Method, "authority", x.authority, "status", f.status, "client", x.client.addr.String(), "error", err)
	}
	if x.rule != nil {
		took := x.o.since() - x.began
		x.told().end(took, x.outcomeOf(f))
		x.rule.profile.end(false, f.status, false, took)
	}
	if reset, ok := errors.AsType[*h2.ResetError](err); ok && x.r.Version == message.HTTP2 {
		x.Break(reset) // what the peer said of the stream is said of this one
		return
	}
	x.answer(f)
}

// answer says the fault to the client.
func (x *exchange) answer(f fault) {
	err := x.Respond(f.response(x.r, !x.o.deps.Config.HideInformational))
	if err == nil {
		err = x.Finish(nil)
	}
	if err != nil {
		x.Break(err)
	}
}

// hostOnly is an authority without its port.
func hostOnly(authority string) string {
	if i := strings.LastIndexByte(authority, ':'); i > strings.LastIndexByte(authority, ']') {
		return authority[:i]
	}
	return authority
}
