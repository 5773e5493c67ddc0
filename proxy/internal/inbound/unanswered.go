package inbound

import (
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"syscall"

	"golang.org/x/net/http2"

	"github.com/weftmesh/weft/proxy/internal/fate"
)

// failApp answers for an application that cannot be reached.
func (in *Inbound) failApp(w http.ResponseWriter, r *http.Request, err error) {
	x := exchangeOf(r)
	if r.Context().Err() != nil { // the client has gone
		x.end.Error = "CANCEL"
		panic(http.ErrAbortHandler)
	}
	x.fate = fateOf(err)
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() || errors.Is(err, os.ErrDeadlineExceeded) {
		in.fail(w, r, failure{http.StatusGatewayTimeout, codeDeadline, "connect timed out", true, "connect timeout"})
		x.end.Error = "REQUEST_TIMEOUT"
		return
	}
	in.log.Debug("request to the application failed", "target", x.session.target.String(), "error", err)
	in.fail(w, r, failure{http.StatusBadGateway, codeUnavailable, "the application could not be reached", true, "i/o"})
	x.end.Error = "IO"
}

// fateOf is what an error of a round trip to the application says of the request.
// A dial that fails comes after nothing else, or after a connection on which
// nothing was written, or after one that broke under a request that may be done
// twice: the transports send no other again.
func fateOf(err error) fate.Fate {
	var op *net.OpError
	var reset http2.StreamError
	switch {
	case errors.As(err, &op) && op.Op == "dial",
		errors.As(err, &reset) && reset.Code == http2.ErrCodeRefusedStream:
		return fate.Unsent
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF),
		errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return fate.Lost
	}
	return ""
}
