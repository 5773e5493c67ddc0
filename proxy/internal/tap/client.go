package tap

import (
	"errors"
	"net"

	"github.com/weftmesh/weft/proxy/internal/h2"
	"github.com/weftmesh/weft/proxy/internal/message"
)

// Watched is the client of an exchange that is shown: what it is answered is told
// to the taps.
type Watched struct {
	message.Client
	Exchange *Exchange
}

// Respond is message.Client's.
func (w *Watched) Respond(res *message.Response) error {
	w.Exchange.Head(res.Status, res.Fields)
	return w.Client.Respond(res)
}

// Finish is message.Client's.
func (w *Watched) Finish(trailer message.Fields) error {
	w.Exchange.End(End{Trailer: trailer})
	return w.Client.Finish(trailer)
}

// Break is message.Client's.
func (w *Watched) Break(err error) {
	w.Exchange.End(EndOf(err))
	w.Client.Break(err)
}

// Tunnel takes the connection over, where the client below can.
func (w *Watched) Tunnel() (net.Conn, error) {
	if t, ok := w.Client.(interface{ Tunnel() (net.Conn, error) }); ok {
		return t.Tunnel()
	}
	return nil, message.ErrAborted
}

// Codes of HTTP/2 (RFC 9113 §7).
const (
	codeInternal = 2
	codeCancel   = 8
)

// EndOf is the end that an error makes.
func EndOf(err error) End {
	e := End{Reset: true, Code: codeInternal}
	if reset, ok := errors.AsType[*h2.ResetError](err); ok {
		e.Code = uint32(reset.Code)
	} else if errors.Is(err, message.ErrGone) {
		e.Code = codeCancel
	}
	return e
}
