package endpoint

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"

	"golang.org/x/net/http2"

	"github.com/weftmesh/weft/proxy/internal/origproto"
	"github.com/weftmesh/weft/proxy/internal/resolve"
)

// A Call is one request to an endpoint. Request and its Header are the
// endpoint's to change.
type Call struct {
	Request  *http.Request
	HTTP2    bool   // the client spoke HTTP/2
	Minor    int    // of the client's HTTP/1
	Absolute bool   // the client sent a whole URI, and the server is to see it
	Upgrade  bool   // the client asked to leave HTTP
	Sending  func() // called when there is a connection to send on
}

func (c Call) sending() {
	if c.Sending != nil {
		c.Sending()
	}
}

// errGone means that the endpoint has left the set: another takes the request.
var errGone = errors.New("the endpoint has been removed")

// Unsent reports whether the request surely has not been processed by anyone, so
// that it may go to another endpoint whatever its method. The body may have been
// read in part.
func Unsent(err error) bool {
	var d *DialError
	var u *unsentError
	return errors.As(err, &d) && !d.Refused || errors.As(err, &u) || errors.Is(err, errGone)
}

type unsentError struct{ err error }

func (e *unsentError) Error() string { return "not sent: " + e.err.Error() }
func (e *unsentError) Unwrap() error { return e.err }

// RoundTrip sends the request and returns the head of the response. It does not
// look at what the response says.
func (e *Endpoint) RoundTrip(c Call) (*http.Response, error) {
	if e.Override != "" && e.Meshed() {
		c.Request.Host = e.Override
		c.Request.URL.Host = e.Override
		c.Request.Header.Del("L5d-Dst-Canonical")
	}
	switch {
	case c.HTTP2:
		return e.over2(c)
	case e.Hint == resolve.HintH2 && !c.Upgrade && !e.local:
		return e.upgraded(c)
	}
	return e.over1(c)
}

// upgraded carries HTTP/1 over HTTP/2.
func (e *Endpoint) upgraded(c Call) (*http.Response, error) {
	origproto.Set(c.Request.Header, origproto.Proto{Minor: c.Minor, Absolute: c.Absolute})
	res, err := e.over2(c)
	if err != nil {
		return nil, err
	}
	minor := 1
	if p, ok := origproto.Take(res.Header); ok {
		minor = p.Minor
	}
	res.Proto, res.ProtoMajor, res.ProtoMinor = fmt.Sprintf("HTTP/1.%d", minor), 1, minor
	return res, nil
}

func (e *Endpoint) over2(c Call) (*http.Response, error) {
	conn, err := e.h2.get(c.Request.Context())
	if err != nil {
		return nil, err
	}
	c.sending()
	var wrote atomic.Bool
	req := c.Request.WithContext(httptrace.WithClientTrace(c.Request.Context(), &httptrace.ClientTrace{
		WroteHeaders: func() { wrote.Store(true) },
	}))
	res, err := conn.RoundTrip(req)
	conn.started()
	if err == nil {
		return res, nil
	}
	if ctx := c.Request.Context(); ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if spent(err) {
		e.h2.renounce(conn)
	}
	if !wrote.Load() || unprocessed(err) {
		return nil, &unsentError{err}
	}
	return nil, err
}

// The library exports neither error.
const (
	saidGoAway = "http2: Transport received Server's graceful shutdown GOAWAY"
	saidSpent  = "http2: client conn not usable"
)

// spent knows a connection that takes no more requests but lives on for those it
// has: its peer is about to leave, or all numbers of streams are used up. The
// connection itself has no error then.
func spent(err error) bool { return err.Error() == saidGoAway || err.Error() == saidSpent }

// unprocessed knows the ways in which a peer says that it has not looked at a
// request (RFC 9113 §8.7).
func unprocessed(err error) bool {
	if err.Error() == saidGoAway {
		return true
	}
	var reset http2.StreamError
	return errors.As(err, &reset) && reset.Code == http2.ErrCodeRefusedStream
}

// over1 speaks HTTP/1.1, whichever minor version the client spoke.
func (e *Endpoint) over1(c Call) (*http.Response, error) {
	if c.Request.URL.Host == "" {
		c.Request.URL.Host = e.Addr.String()
	}
	if c.Absolute {
		path := c.Request.URL.Opaque // as the client wrote it
		if path == "" {
			path = c.Request.URL.EscapedPath()
		}
		c.Request.URL.Opaque = "//" + c.Request.URL.Host + path
	}
	var wrote atomic.Bool
	req := c.Request.WithContext(httptrace.WithClientTrace(c.Request.Context(), &httptrace.ClientTrace{
		WroteHeaders: func() { wrote.Store(true) },
		GotConn:      func(httptrace.GotConnInfo) { c.sending() },
	}))
	res, err := e.h1.RoundTrip(req)
	if err == nil {
		return res, nil
	}
	if ctx := c.Request.Context(); ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	var d *DialError
	if !wrote.Load() && !errors.As(err, &d) {
		return nil, &unsentError{err}
	}
	return nil, err
}
