// Package message is an HTTP message as the layers of the proxy see it: a head
// of strings, and a body that comes in pieces. It is the same whether HTTP/1 or
// HTTP/2 carried it, and knows neither connections nor their framing.
//
// Both are borrowed. A body's piece is valid until the next call. A head, its
// fields and all their strings are valid until the exchange is over: for the layers,
// until they return. Whoever keeps a string for longer (a metric's label, a span, a
// log that is written later), or hands it to a goroutine that is not waited for,
// clones it: strings.Clone, Fields.Keep. Built with the race detector, what was
// borrowed is overwritten when it is given back, so that tests see who did not.
package message

import (
	"context"
	"errors"
	"io"
	"strings"
)

// A Version is the version of HTTP that a message came in.
type Version uint8

// The versions.
const (
	HTTP10 Version = iota
	HTTP11
	HTTP2
)

// Major is 1 or 2.
func (v Version) Major() int {
	if v == HTTP2 {
		return 2
	}
	return 1
}

// Minor is the number after the dot.
func (v Version) Minor() int {
	if v == HTTP11 {
		return 1
	}
	return 0
}

// Unknown is the length of a body that ends when it ends.
const Unknown = -1

// A Request is the head of a request.
type Request struct {
	Version   Version
	Method    string
	Scheme    string // of an absolute target or of HTTP/2; else ""
	Authority string // the target's, else Host's
	// Target is path and query as they were written; "*" for OPTIONS of a server;
	// "" for CONNECT.
	Target   string
	Absolute bool   // the target was a whole URI
	Fields   Fields // Host included, where there was one
	Length   int64  // of the body; 0 is none, Unknown if it was not said
}

// Path is the target's path as it was written, without the query; never "".
func (r *Request) Path() string {
	path, _, _ := strings.Cut(r.Target, "?")
	if path == "" {
		return "/"
	}
	return path
}

// Query is what follows the question mark.
func (r *Request) Query() string {
	_, query, _ := strings.Cut(r.Target, "?")
	return query
}

// GRPC reports whether the request is gRPC's, by its content type.
func (r *Request) GRPC() bool {
	return strings.HasPrefix(r.Fields.Get("content-type"), "application/grpc")
}

// Upgrade is what the request asks to change to, "" if to nothing. HTTP/2 over
// cleartext is never passed on, not in a list either: behind it nobody here could see,
// judge or count requests (spec/proxy.md §9.4).
func (r *Request) Upgrade() string {
	to, ok := r.Fields.Find("upgrade")
	if !ok || r.Version != HTTP11 || !r.Fields.HasToken("connection", "upgrade") {
		return ""
	}
	if r.Fields.Count("upgrade") == 1 && !strings.ContainsAny(to, ", \t") {
		if Is(to, "h2c") {
			return ""
		}
		return to
	}
	var all []string
	for _, line := range r.Fields.Values("upgrade") {
		for to := range strings.SplitSeq(line, ",") {
			if to = strings.Trim(to, " \t"); to != "" && !Is(to, "h2c") {
				all = append(all, to)
			}
		}
	}
	return strings.Join(all, ", ")
}

// Safe reports whether doing the request twice is as doing it once, and it asks
// for nothing to change (RFC 9110 §9.2.1).
func (r *Request) Safe() bool {
	switch r.Method {
	case "GET", "HEAD", "OPTIONS", "TRACE":
		return true
	}
	return false
}

// A Response is the head of a response, interim ones included.
type Response struct {
	Version Version
	Status  int
	Reason  string // of HTTP/1; mostly not worth passing on, but it was written
	Fields  Fields
	Length  int64 // of the body that follows; 0 is none, Unknown if it was not said
}

// Bodyless reports whether no body may follow whatever the head says: that
// depends on the question too (RFC 9112 §6.3).
func Bodyless(method string, status int) bool {
	return method == "HEAD" || status/100 == 1 || status == 204 || status == 304 || method == "CONNECT" && status/100 == 2
}

// A Body is the content of a message, for one reader.
type Body interface {
	// Next returns the next piece, borrowed until the next call; io.EOF comes after
	// the last one. It waits, until Abort if need be.
	Next() ([]byte, error)
	// Ready reports whether Next would not wait.
	Ready() bool
	// Trailer is what followed the body; nil before io.EOF.
	Trailer() Fields
	// Abort ends the body: Next fails with the error. Any goroutine may call it.
	Abort(err error)
}

// An Aborter can be ended by somebody else.
type Aborter interface{ Abort(err error) }

// A Client is one request and the way back to who sent it. Its methods are for
// one goroutine.
type Client interface {
	Request() *Request
	// Body is the request's; nil if it has none.
	Body() Body
	// Context ends when the client has gone or the answer is complete.
	Context() context.Context
	// Guard names what is to be aborted when the client goes; nil names nothing, and
	// when that returns nobody is being told any more.
	Guard(a Aborter)
	// Interim sends a 1xx head, where the client's version knows such.
	Interim(*Response) error
	// Respond sends the head. With a length of 0 nothing follows but Finish.
	Respond(*Response) error
	// Write sends a piece of the body, which is free again when it returns.
	Write(p []byte) error
	// Flush sends what was kept back to be sent together with what follows.
	Flush() error
	// Finish ends the answer; a trailer is sent where there is a way to.
	Finish(trailer Fields) error
	// Break ends an answer that cannot be completed, in a way that the client can
	// tell from its end.
	Break(err error)
}

// Errors of bodies and answers.
var (
	ErrGone    = errors.New("the client has gone")
	ErrAborted = errors.New("the exchange was given up")
)

// Drain reads a body to its end, most bytes at most, and reports whether it came.
func Drain(b Body, most int) bool {
	for most >= 0 {
		p, err := b.Next()
		if errors.Is(err, io.EOF) {
			return true
		}
		if err != nil {
			return false
		}
		most -= len(p)
	}
	return false
}
