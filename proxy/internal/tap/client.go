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

// EndOf is the end that an error makes: of a stream that was reset, the code; of
// what broke otherwise, nothing.
func EndOf(err error) End {
	if reset, ok := errors.AsType[*h2.ResetError](err); ok {
		return End{Reset: true, Code: uint32(reset.Code)}
	}
	return End{}
}
