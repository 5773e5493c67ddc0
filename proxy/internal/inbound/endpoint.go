package inbound

import (
	"errors"
	"net/http"
	"strings"

	"github.com/weftmesh/weft/proxy/internal/fate"
	"github.com/weftmesh/weft/proxy/internal/message"
	"github.com/weftmesh/weft/proxy/internal/origproto"
	"github.com/weftmesh/weft/proxy/internal/relay"
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
	q := relay.Question{Request: in.request(x), Guard: &x.guard, Interim: x.interim}
	if b := x.Body(); b != nil {
		q.Body = relay.NewReplay(b, rewindable, nil)
		defer q.Body.End()
	}
	a, err := in.ask(x, q)
	if err != nil {
		in.failApp(x, err)
		return
	}
	in.answer(x, a.Response, a.Body)
	a.Close()
}

// rewindable is how much of a body is remembered, in bytes, so that a request is
// not lost to a connection that the application has closed in the meantime.
const rewindable = 8 << 10

// ask speaks with the application in the version that the client's does.
func (in *Inbound) ask(x *exchange, q relay.Question) (*relay.Answer, error) {
	if !x.native() {
		return relay.Over1(x.Context(), &x.session.app.http1, q)
	}
	for tries := 0; ; tries++ {
		a, err := relay.Over2(x.Context(), &x.session.app.http2, q)
		var unsent *relay.UnsentError
		if err == nil || tries > 2 || !errors.As(err, &unsent) || q.Body != nil && !q.Body.Again() {
			return a, err
		}
	}
}

// interim passes a 1xx answer on.
func (x *exchange) interim(res *message.Response) error {
	hopByHop(&res.Fields)
	return x.Interim(res)
}

// request is what the application gets.
func (in *Inbound) request(x *exchange) *message.Request {
	out := *x.req
	if x.upgraded {
		out.Version, out.Absolute = message.HTTP11, x.proto.Absolute
		if x.proto.Minor == 0 {
			out.Version = message.HTTP10
		}
		out.Scheme = ""
	}
	if (x.upgraded || out.Absolute) && out.Authority != "" && out.Fields.Has("host") {
		out.Fields.Set("host", out.Authority) // the host that the policy has judged (RFC 9112 §3.2.2, RFC 9113 §8.3.1)
	}
	return &out
}

// answer passes the application's response on.
func (in *Inbound) answer(x *exchange, res *message.Response, body message.Body) {
	if res.Status < 200 { // a switch that nobody asked for
		in.failApp(x, relay.ErrStatus)
		return
	}
	hopByHop(&res.Fields)
	fate.Take(&res.Fields) // a proxy's word, not the application's
	if x.upgraded {
		origproto.Set(&res.Fields, origproto.Proto{Minor: res.Version.Minor()})
	}
	x.end.Status = res.Status
	err := x.Respond(res)
	if err == nil {
		err = relay.Pass(x, body, res.Length, func() {})
	}
	if err != nil {
		x.end.Error = "CANCEL"
		if read, ok := errors.AsType[*relay.ReadError](err); ok && x.guard.Err() == nil {
			x.end.Error, err = "IO", read.Err
		}
		// The headers are gone: only a break can still tell the client.
		x.Break(err)
		return
	}
	if x.grpc {
		x.end.GRPC = grpcStatus(res, body)
	}
}

func grpcStatus(res *message.Response, body message.Body) string {
	if s := body.Trailer().Get("grpc-status"); s != "" {
		return s
	}
	if s := res.Fields.Get("grpc-status"); s != "" {
		return s
	}
	return "2" // none at all is UNKNOWN
}

// hopByHop removes the headers that concern one connection only.
func hopByHop(f *message.Fields) {
	if strings.EqualFold(f.Get("upgrade"), "h2c") {
		f.Del("http2-settings")
	}
	f.DelHop(message.HopByHop)
}
