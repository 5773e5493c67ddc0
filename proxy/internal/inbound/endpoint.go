package inbound

import (
	"errors"
	"net/http"

	"github.com/weftmesh/weft/proxy/internal/clock"
	"github.com/weftmesh/weft/proxy/internal/fate"
	"github.com/weftmesh/weft/proxy/internal/h2"
	"github.com/weftmesh/weft/proxy/internal/message"
	"github.com/weftmesh/weft/proxy/internal/origproto"
	"github.com/weftmesh/weft/proxy/internal/relay"
	"github.com/weftmesh/weft/proxy/internal/tell"
)

// endpoint sends the request to the application and its answer back, neither of
// them held up: bodies stream both ways.
func (in *Inbound) endpoint(x *exchange) {
	if x.req.Version != message.HTTP2 && x.req.Method == http.MethodConnect || x.upgrade != "" {
		in.tunnel(x)
		return
	}
	x.Guard(&x.guard)
	defer x.Guard(nil)
	q := relay.Question{Request: in.request(x), Guard: &x.guard, Interim: x.asked.hint, Now: x.began}
	if b := x.Body(); b != nil {
		q.Body = relay.NewReplay(b, rewindable, nil)
		defer func() {
			if x.whole {
				q.Body.Free()
			} else {
				q.Body.End()
			}
		}()
	}
	a, tries, err := in.ask(x, q)
	if err != nil {
		in.failApp(x, err)
		return
	}
	passed := in.answer(x, a.Response, a.Body)
	x.ended = clock.Now()
	a.Close(x.ended)
	x.whole = passed && tries == 1
}

// rewindable is how much of a body is remembered, in bytes, so that a request is
// not lost to a connection that the application has closed in the meantime.
const rewindable = 8 << 10

// ask speaks with the application in the version that the client's does.
func (in *Inbound) ask(x *exchange, q relay.Question) (a *relay.Answer, tries int, err error) {
	if !x.native() {
		a, err := relay.Over1(x.Context(), &x.session.app.http1, q)
		return a, 1, err
	}
	for tries := 1; ; tries++ {
		a, err := relay.Over2(x.Context(), &x.session.app.http2, q)
		if err == nil || tries > 3 || !unsent(err) || q.Body != nil && !q.Body.Again() {
			return a, tries, err
		}
	}
}

func unsent(err error) bool {
	_, ok := errors.AsType[*relay.UnsentError](err)
	return ok
}

// interim passes a 1xx answer on.
func (x *exchange) interim(res *message.Response) error {
	hopByHop(&res.Fields)
	return x.Interim(res)
}

// request is what the application gets.
func (in *Inbound) request(x *exchange) *message.Request {
	out := &x.out
	*out = *x.req
	if x.upgraded {
		out.Version, out.Absolute = message.HTTP11, x.proto.Absolute
		if x.proto.Minor == 0 {
			out.Version = message.HTTP10
			if !out.Absolute && !out.Fields.Has("host") { // the client named none: :authority is a proxy's
				out.Authority = ""
			}
		}
	}
	return out
}

// answer passes the application's response on, and reports whether it came to its
// end.
func (in *Inbound) answer(x *exchange, res *message.Response, body message.Body) bool {
	if res.Status < 200 { // a switch that nobody asked for
		in.failApp(x, relay.ErrStatus)
		return false
	}
	hopByHop(&res.Fields)
	fate.Take(&res.Fields) // a proxy's word, not the application's
	if x.upgraded {
		origproto.Set(&res.Fields, origproto.Proto{Minor: res.Version.Minor()})
	}
	x.end.Status = res.Status
	err := x.Respond(res)
	if err == nil {
		err = relay.Pass(x, body, res.Length, nobody{})
	}
	if err != nil {
		if read, ok := errors.AsType[*relay.ReadError](err); ok && x.guard.Err() == nil {
			x.end.Error, err = tell.Unclassified, read.Err
			if reset, ok := errors.AsType[*h2.ResetError](err); ok {
				x.end.Error = resetLabel(reset)
			}
		} else if errors.Is(x.guard.Err(), errLate) {
			x.end.Error = tell.Timeout
		}
		// The headers are gone: only a break can still tell the client.
		x.Break(err)
		return false
	}
	if x.grpc {
		x.end.GRPC = tell.Code(grpcStatus(res, body))
		if x.unsaid = x.end.GRPC == ""; x.unsaid {
			x.end.GRPC = "2"
		}
	}
	return true
}

// nobody wants to know when an answer begins.
type nobody struct{}

func (nobody) FirstByte() {}

func grpcStatus(res *message.Response, body message.Body) string {
	if s := body.Trailer().Get("grpc-status"); s != "" {
		return s
	}
	return res.Fields.Get("grpc-status")
}

// hopByHop removes the headers that concern one connection only.
func hopByHop(f *message.Fields) {
	f.Del("http2-settings")
	f.DelHop(message.HopByHop)
}
