package outbound

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"google.golang.org/grpc/codes"

	"github.com/weftmesh/weft/proxy/internal/balance"
	"github.com/weftmesh/weft/proxy/internal/change"
	"github.com/weftmesh/weft/proxy/internal/endpoint"
	"github.com/weftmesh/weft/proxy/internal/explicit"
	"github.com/weftmesh/weft/proxy/internal/h2"
	"github.com/weftmesh/weft/proxy/internal/message"
	"github.com/weftmesh/weft/proxy/internal/relay"
	"github.com/weftmesh/weft/proxy/internal/resolve"
	"github.com/weftmesh/weft/proxy/internal/tell"
)

// Reasons that come from this package.
var (
	errShed            = errors.New("no backend is available")
	errLimit           = errors.New("too many requests in flight")
	errTerminal        = errors.New("the destination was refused")
	errRequestTimeout  = errors.New("request timed out")
	errResponseTimeout = errors.New("response timed out")
	errHeadersTimeout  = errors.New("response headers timed out")
	errIdleTimeout     = errors.New("stream was idle for too long")
	errAttemptTimeout  = errors.New("the backend's answer timed out")
	errProfileTimeout  = errors.New("request timed out by its service's profile")
	errInvalid         = errors.New("invalid client policy configuration")
	errNoRoute         = errors.New("no route")
	errRequireID       = errors.New("require-id: the endpoint has another identity, or none")
	errNoSNI           = errors.New("the connection begins with no TLS handshake that names a server")
	errConnect2        = errors.New("CONNECT is understood over HTTP/1.1 only")
)

// A fault is what a client is told in place of a response (spec/proxy.md §9.3).
type fault struct {
	status  int
	code    codes.Code
	message string
	close   bool   // the client's connection is given up too
	label   string // of outbound_http_errors_total
	short   string // of the route families' error label
	stream  string // of the endpoint families' error label
	broken  bool   // it came out of a round trip: the connection's, or the peer's
	headers message.Fields
}

// timedOut is the label of what took too long.
const timedOut = "response timeout"

// noDispatcher is a backend that nothing can be sent to.
type noDispatcher struct{ ref resolve.Ref }

func (e *noDispatcher) Error() string { return "backend for " + e.ref.String() + " has no dispatcher" }

// answered is an error that is itself the answer: a filter's.
type answered struct{ fault }

func (e *answered) Error() string { return e.message }

// failed is what an injected failure answers.
func failed(f *resolve.Fail) error {
	if f.GRPC {
		return &answered{fault{status: http.StatusOK, code: codes.Code(f.Status), message: f.Message}}
	}
	return &answered{fault{status: f.Status, code: codes.FailedPrecondition, message: f.Message}}
}

// faultOf maps an error to what the client is told.
func faultOf(err error) fault {
	var ours *answered
	var dispatch *noDispatcher
	var dial *endpoint.DialError
	bad := func(status int, code codes.Code, closing bool, label, short string) fault {
		stream := tell.Unclassified
		if label == timedOut {
			stream = tell.Timeout
		}
		return fault{status: status, code: code, message: err.Error(), close: closing, label: label, short: short, stream: stream}
	}
	is := func(target error) bool { return errors.Is(err, target) }
	switch {
	case errors.As(err, &ours):
		return ours.fault
	case is(explicit.ErrOriginForm), is(explicit.ErrScheme), is(explicit.ErrAuthority), is(errConnect2), is(relay.ErrBody):
		return bad(400, codes.InvalidArgument, true, "unexpected", endUnknown)
	case is(balance.ErrFailfast):
		return bad(504, codes.DeadlineExceeded, true, "failfast", "FAIL_FAST")
	case is(errShed), is(errLimit), is(errFull), is(balance.ErrFull), is(balance.ErrClosed):
		return bad(503, codes.Unavailable, true, "loadshed", "LOAD_SHED")
	case is(errRequestTimeout):
		return bad(504, codes.DeadlineExceeded, false, timedOut, "REQUEST_TIMEOUT")
	case is(errResponseTimeout):
		return bad(504, codes.DeadlineExceeded, false, timedOut, "RESPONSE_STREAM_TIMEOUT")
	case is(errHeadersTimeout):
		return bad(504, codes.DeadlineExceeded, false, timedOut, "RESPONSE_HEADERS_TIMEOUT")
	case is(errIdleTimeout):
		return bad(504, codes.DeadlineExceeded, false, timedOut, "IDLE_TIMEOUT")
	case is(errAttemptTimeout):
		return bad(504, codes.DeadlineExceeded, false, timedOut, "RESPONSE_STREAM_TIMEOUT")
	case is(errProfileTimeout):
		return bad(504, codes.DeadlineExceeded, true, timedOut, "REQUEST_TIMEOUT")
	case errors.As(err, &dial) && dial.Timeout:
		return bad(504, codes.DeadlineExceeded, true, "i/o", endIO)
	case errors.As(err, &dispatch), is(resolve.ErrForbidden), is(resolve.ErrNoBackend):
		return bad(502, codes.Unavailable, true, "unexpected", endUnknown)
	case is(errRequireID):
		return bad(502, codes.Unavailable, true, "identity required", endUnknown)
	case is(errNoRoute):
		return bad(404, codes.NotFound, false, "unexpected", endUnknown)
	case is(errNoSNI):
		return bad(400, codes.InvalidArgument, true, "unexpected", endUnknown)
	case is(resolve.ErrUnknown):
		return bad(502, codes.Unavailable, true, "unexpected", endUnknown)
	case is(errInvalid), is(errTerminal), is(change.ErrNoPrefix):
		return bad(500, codes.Internal, true, "unexpected", endUnknown)
	case is(context.Canceled):
		return bad(499, codes.Canceled, true, "unexpected", endCancel)
	}
	// Whatever else comes out of a round trip is the connection's.
	f := bad(502, codes.Unavailable, true, "i/o", endIO)
	f.broken = true
	if reset, ok := errors.AsType[*h2.ResetError](err); ok {
		f = resetOf(reset, f)
	} else if leaving, ok := errors.AsType[*h2.GoAwayError](err); ok {
		f.stream = resetLabel(leaving.Code)
	}
	return f
}

// response is the fault as an answer. A gRPC client is told in gRPC's words.
func (f fault) response(r *message.Request, informational bool) *message.Response {
	res := &message.Response{Version: r.Version, Status: f.status, Fields: f.headers.Clone(6)}
	h := &res.Fields
	h.Add("Content-Length", "0")
	text := printable(f.message)
	if informational && text != "" {
		h.Add("L5d-Proxy-Error", text)
	}
	if f.close {
		h.Add("Connection", "close") // over HTTP/2 it becomes a graceful GOAWAY
		if informational {
			h.Add("L5d-Proxy-Connection", "close")
		}
	}
	if r.Version == message.HTTP2 && r.GRPC() {
		res.Status = http.StatusOK
		h.Add("Content-Type", "application/grpc")
		h.Add("Grpc-Status", strconv.Itoa(int(f.code)))
		if informational && text != "" {
			h.Add("Grpc-Message", percent(text))
		}
	} else if res.Status < 200 {
		res.Status = http.StatusInternalServerError
	}
	return res
}

// printable is a header value that says it, or says that it cannot.
func printable(s string) string {
	const most = 512
	if len(s) > most {
		s = s[:most]
	}
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return "unexpected error"
		}
	}
	return s
}

// percent encodes a grpc-message.
func percent(s string) string {
	var b strings.Builder
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '%' {
			fmt.Fprintf(&b, "%%%02X", c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}
