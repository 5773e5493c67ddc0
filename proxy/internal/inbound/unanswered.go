package inbound

import (
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"syscall"

	"github.com/weftmesh/weft/proxy/internal/fate"
	"github.com/weftmesh/weft/proxy/internal/frame"
	"github.com/weftmesh/weft/proxy/internal/h1"
	"github.com/weftmesh/weft/proxy/internal/h2"
	"github.com/weftmesh/weft/proxy/internal/message"
	"github.com/weftmesh/weft/proxy/internal/relay"
	"github.com/weftmesh/weft/proxy/internal/tell"
)

// failApp answers for an application that cannot be reached.
func (in *Inbound) failApp(x *exchange, err error) {
	if errors.Is(x.guard.Err(), errLate) {
		in.fail(x, failure{http.StatusGatewayTimeout, codeDeadline, "request timed out by its service's profile", true, "unexpected"})
		x.end.Error = tell.Timeout
		return
	}
	if x.guard.Err() != nil || errors.Is(err, message.ErrGone) { // the client has gone
		x.Break(message.ErrGone)
		return
	}
	if errors.Is(err, relay.ErrBody) {
		in.fail(x, failure{http.StatusBadRequest, codeInternal, "the request body is malformed or incomplete", true, "unexpected"})
		return
	}
	if reset, ok := errors.AsType[*h2.ResetError](err); ok && x.native() {
		x.end.Error = resetLabel(reset)
		x.Break(reset)
		return
	}
	x.fate = fateOf(err)
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() || errors.Is(err, os.ErrDeadlineExceeded) {
		in.fail(x, failure{http.StatusGatewayTimeout, codeDeadline, "connect timed out", true, "unexpected"})
		return
	}
	in.log.Debug("request to the application failed", "target", x.session.target.String(), "error", err)
	in.fail(x, failure{http.StatusBadGateway, codeUnavailable, "the application could not be reached", true, "i/o"})
}

// resetLabel names the code of a reset; applications may make codes up.
func resetLabel(reset *h2.ResetError) string {
	if reset.Code > frame.HTTP11Required {
		return "h2(UNKNOWN)"
	}
	return "h2(" + reset.Code.String() + ")"
}

// fateOf is what an error of a round trip to the application says of the request.
// A dial that fails comes after nothing else, or after a connection on which
// nothing was written, or after one that broke under a request that may be done
// twice: no other is sent again.
func fateOf(err error) fate.Fate {
	var op *net.OpError
	var unsent *relay.UnsentError
	switch {
	case errors.As(err, &op) && op.Op == "dial", errors.As(err, &unsent):
		return fate.Unsent
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, h1.ErrStale),
		errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return fate.Lost
	}
	return ""
}
