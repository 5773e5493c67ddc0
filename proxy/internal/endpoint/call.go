package endpoint

import (
	"context"
	"errors"

	"github.com/weftmesh/weft/proxy/internal/message"
	"github.com/weftmesh/weft/proxy/internal/origproto"
	"github.com/weftmesh/weft/proxy/internal/relay"
	"github.com/weftmesh/weft/proxy/internal/resolve"
)

// A Call is one request to an endpoint. Its Request and the fields of that are
// the endpoint's to change.
type Call struct {
	relay.Question
	HTTP2    bool // the client spoke HTTP/2
	Absolute bool // the client sent a whole URI, and the server is to see it
	Upgrade  bool // the client asked to leave HTTP
	Hostless bool // the client named no host: over HTTP/1.0, neither do we
}

// Unsent reports whether the request surely has not been processed by anyone, so
// that it may go to another endpoint whatever its method. The body may have been
// read in part.
func Unsent(err error) bool {
	var d *DialError
	var u *relay.UnsentError
	return errors.As(err, &d) && !d.Refused || errors.As(err, &u)
}

// RoundTrip sends the request and returns the head of the response. It does not
// look at what the response says. An endpoint that has been removed meanwhile is
// an error that Unsent knows.
func (e *Endpoint) RoundTrip(ctx context.Context, c Call) (*relay.Answer, error) {
	if e.Override != "" && e.Meshed() {
		c.Request.Authority = e.Override
		if c.Request.Fields.Has("host") {
			c.Request.Fields.Set("host", e.Override)
		}
		c.Request.Fields.Del("l5d-dst-canonical")
	}
	switch {
	case c.HTTP2:
		return relay.Over2(ctx, &e.h2, c.Question)
	case e.Hint == resolve.HintH2 && !c.Upgrade && !e.local:
		return e.upgraded(ctx, c)
	}
	c.Request.Absolute = c.Absolute
	if c.Hostless && c.Request.Version == message.HTTP10 {
		c.Request.Authority = ""
	}
	return relay.Over1(ctx, &e.h1, c.Question)
}

// upgraded carries HTTP/1 over HTTP/2.
func (e *Endpoint) upgraded(ctx context.Context, c Call) (*relay.Answer, error) {
	if !c.Hostless && !c.Request.Fields.Has("host") {
		c.Request.Fields.Add("Host", c.Request.Authority)
	}
	origproto.Set(&c.Request.Fields, origproto.Proto{Minor: c.Request.Version.Minor(), Absolute: c.Absolute})
	a, err := relay.Over2(ctx, &e.h2, c.Question)
	if err != nil {
		return nil, err
	}
	a.Version = message.HTTP11
	if p, ok := origproto.Take(&a.Fields); ok && p.Minor == 0 {
		a.Version = message.HTTP10
	}
	return a, nil
}
