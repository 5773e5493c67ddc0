package outbound

import (
	"cmp"
	"time"

	"github.com/weftmesh/weft/proxy/internal/balance"
	"github.com/weftmesh/weft/proxy/internal/change"
	"github.com/weftmesh/weft/proxy/internal/classify"
	"github.com/weftmesh/weft/proxy/internal/message"
	"github.com/weftmesh/weft/proxy/internal/relay"
	"github.com/weftmesh/weft/proxy/internal/resolve"
	"github.com/weftmesh/weft/proxy/internal/tell"
)

// outgoing makes the request for an endpoint, new for each attempt.
func (x *exchange) outgoing() *message.Request {
	out := &x.kept.out
	if x.tries > 1 {
		out = new(message.Request)
	}
	room := out.Fields
	*out = *x.r
	out.Fields = requestFields(room, x.r)
	out.Authority = x.authority
	if x.client.explicit {
		out.Scheme = ""
		if out.Fields.Has("host") {
			out.Fields.Set("host", x.authority) // RFC 9112 §3.2.2
		}
		out.Fields.Del("proxy-authorization") // else it is another proxy's, behind us
	}
	out.Absolute = false
	if x.body == nil {
		out.Length = 0
	}
	if p := x.rule.Profile; p != nil {
		out.Fields.Set("l5d-dst-canonical", p.Canonical)
	}
	return out
}

// hint passes interim responses (103 Early Hints) on as they come.
func (x *exchange) hint(res *message.Response) error {
	responseFields(&res.Fields)
	return x.Interim(res)
}

// filter applies filters to a request; an error is the answer in place of a
// response.
func (x *exchange) filter(filters []resolve.Filter, out *message.Request) error {
	for _, f := range filters {
		switch {
		case f.Request != nil:
			before := out.Fields.Get("host")
			f.Request.Apply(&out.Fields)
			if host := out.Fields.Get("host"); host != before && host != "" {
				out.Authority = host
			}
		case f.Fail != nil && random() < f.Fail.Ratio:
			return failed(f.Fail)
		case f.Rewrite != nil:
			if err := f.Rewrite.Apply(out, x.prefix()); err != nil {
				return err
			}
		case f.Redirect != nil:
			to, ok, err := f.Redirect.To(x.r, x.authority, x.prefix())
			if err != nil {
				return err
			}
			if ok {
				return &answered{fault{status: f.Redirect.Status, code: 5, headers: message.Fields{{Name: "Location", Value: to}}}}
			}
		}
	}
	return nil
}

// prefix is the longest of the rule's prefixes that the path has: "" is one of every
// path, and so is no match at all.
func (x *exchange) prefix() change.Prefix {
	longest := change.Prefix{Ok: len(x.rule.Matches) == 0}
	for _, m := range x.rule.Matches {
		if m.PathKind != resolve.PathPrefix && m.PathKind != resolve.PathAny || longest.Ok && len(m.Path) <= len(longest.Text) {
			continue
		}
		if _, ok := change.CutPrefix(x.r.Path(), m.Path); ok {
			longest = change.Prefix{Text: m.Path, Ok: true}
		}
	}
	return longest
}

// respond gives the response to the client, byte by byte as it comes.
func (x *exchange) respond(t *try) error {
	res := t.res
	switch {
	case x.r.Version != message.HTTP2 && (res.Status == 101 && x.r.Upgrade() != "" || x.r.Method == "CONNECT" && res.Status/100 == 2):
		return x.switched(t)
	case res.Status < 200:
		t.answer.Drop()
		t.end(tell.End{Status: 502}, outcome{status: 502, grpc: "14"}, balance.Failure, x.o.since())
		return relay.ErrStatus // a switch that nobody asked for
	}
	leaves := t.leaves()
	responseFields(&res.Fields)
	for _, filters := range [][]resolve.Filter{x.rule.Filters, t.backend.Filters} {
		for _, f := range filters {
			if f.Response != nil {
				f.Response.Apply(&res.Fields)
			}
		}
	}
	x.sticky.answered(t.lease.Client.Endpoint, res)
	if leaves {
		res.Fields.Add("Connection", "close") // over HTTP/2 it becomes a graceful GOAWAY
	}
	err := x.Respond(res)
	if err == nil {
		err = relay.Pass(x, x.quiet.body(t.body), res.Length, t.lease)
	}
	if err != nil {
		err = cmp.Or(x.guard.Err(), t.guard.Err(), err)
	}
	now := x.o.since()
	x.finish(t, err, now)
	if err != nil {
		// The head is out: breaking off is the only honest end.
		t.answer.Drop()
		x.Break(err)
		return nil
	}
	t.answer.Close(now)
	x.whole = x.tries == 1 && x.quiet == nil && t.timer == nil && !x.rule.mirrored
	return nil
}

// finish counts the end of an exchange that had a response.
func (x *exchange) finish(t *try, err error, now time.Duration) {
	e := tell.End{Status: t.res.Status, Success: t.res.Status < 500}
	if x.grpc {
		status := t.status()
		e.GRPC = tell.Code(status)
		// Without a status it is UNKNOWN by name, but no failure (spec/proxy.md §6.7).
		e.Success = classify.Success(e.Status, true, status)
		if e.GRPC == "" {
			e.GRPC = "2"
		}
	}
	if p := x.rule.Profile; p != nil {
		e.Success = p.Classes.Success(e.Status, t.status())
	}
	o := outcome{status: e.Status, grpc: e.GRPC}
	verdict := balance.Success
	switch {
	case err != nil && x.leftBy(err):
		o.err = endCancel
		if verdict = balance.Neutral; !e.Success {
			verdict = balance.Failure // it had failed before the client left
		}
		t.lease.FirstByte() // it has taken so long at least, if there was none
	case err != nil:
		x.broke(err, &e, &o)
		verdict = balance.Failure
	case !e.Success:
		verdict = balance.Failure
	}
	if t.res.Status == 429 || e.GRPC == "8" {
		verdict = balance.Limited
	}
	t.watched.failed = err
	t.end(e, o, verdict, now)
	x.told().end(now-x.began, o)
	x.rule.profile.end(false, e.Status, e.Success, now-x.began)
}

// status is grpc-status, "" if there is none.
func (t *try) status() string {
	if s := t.res.Fields.Get("grpc-status"); s != "" {
		return s
	}
	return t.body.Trailer().Get("grpc-status")
}

// leaves reports whether the endpoint's proxy wants the client's connection
// closed too. It is heard where there is no other endpoint to go to
// (spec/proxy.md §9.2).
func (t *try) leaves() bool {
	return t.backend.pool.forward && t.lease.Client.Meshed() && t.res.Fields.HasToken("l5d-proxy-connection", "close")
}

// leftBy reports whether an error in the middle of a response is the client's.
func (x *exchange) leftBy(err error) bool {
	return x.gone() || x.guard.Err() == nil && !isRead(err)
}
