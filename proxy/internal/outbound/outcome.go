package outbound

import (
	"errors"
	"net/http"
	"strconv"

	"github.com/weftmesh/weft/proxy/internal/frame"
	"github.com/weftmesh/weft/proxy/internal/h2"
	"github.com/weftmesh/weft/proxy/internal/message"
	"github.com/weftmesh/weft/proxy/internal/tell"
)

// outcome is how a request ended, as the families of routes have it. The zero value
// is one that is not counted: nobody waited for it, or it went on elsewhere.
type outcome struct {
	status int
	grpc   string
	err    string // one of those of spec/proxy.md §15.4; "" if it ended as it should
}

// The errors of outcomes that are made here and in other files.
const (
	endIO      = "IO"
	endCancel  = "CANCEL"
	endUnknown = "UNKNOWN"
)

// outcomeOf is that of a request that has no response of an endpoint. What could not
// be connected to is an answer, 502 or 504 or what gRPC has for them, as is what a
// filter says.
func (x *exchange) outcomeOf(f fault) outcome {
	switch {
	case f.short == endIO && x.answersGRPC():
		return outcome{status: http.StatusOK, grpc: strconv.Itoa(int(f.code))}
	case f.short == endIO, f.short == "":
		return outcome{status: f.status, grpc: strconv.Itoa(int(f.code))}
	}
	return outcome{err: f.short}
}

// endOf is outcomeOf for the families of endpoints.
func (x *exchange) endOf(f fault) tell.End {
	switch {
	case f.short == endIO && x.answersGRPC():
		return tell.End{Status: http.StatusOK, GRPC: strconv.Itoa(int(f.code))}
	case f.short == endIO, f.short == "":
		return tell.End{Status: f.status}
	}
	return tell.End{Error: f.stream}
}

// answersGRPC reports whether faults are told in gRPC's words.
func (x *exchange) answersGRPC() bool { return x.grpc && x.r.Version == message.HTTP2 }

// resetOf is what a peer that has reset the stream is to the client: an HTTP/1
// client, who cannot hear it, has an answer.
func resetOf(reset *h2.ResetError, f fault) fault {
	f.short, f.label, f.stream = "RESET", "unexpected", resetLabel(reset.Code)
	switch reset.Code {
	case frame.Cancel:
		f.short = endCancel
	case frame.RefusedStream:
		f.short = "REFUSED"
	case frame.EnhanceYourCalm:
		f.short = "ENHANCE_YOUR_CALM"
	}
	return f
}

// resetLabel names a code; peers may make codes up.
func resetLabel(c frame.Code) string {
	if c > frame.HTTP11Required {
		return "h2(UNKNOWN)"
	}
	return "h2(" + c.String() + ")"
}

// faultOf is what an error is to this client.
func (x *exchange) faultOf(err error) fault {
	f := faultOf(err)
	if _, reset := errors.AsType[*h2.ResetError](err); reset && x.r.Version != message.HTTP2 {
		f.short, f.stream, f.label = endIO, tell.Unclassified, "i/o"
	}
	return f
}

// broke is the end of a request whose response did not come to its end.
func (x *exchange) broke(err error, e *tell.End, o *outcome) {
	f := faultOf(err)
	if f.short == "" {
		f.short = endUnknown
	}
	e.Error, e.Success, o.err = f.stream, false, f.short
}

// missed counts a request that the backend has not answered.
func (x *exchange) missed(err error) {
	if x.from == nil || x.gone() {
		return
	}
	x.from.end(x.o.since()-x.began, x.outcomeOf(x.faultOf(err)))
}
