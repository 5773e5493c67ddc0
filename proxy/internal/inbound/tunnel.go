package inbound

import (
	"net"
	"net/http"

	"github.com/weftmesh/weft/proxy/internal/detect"
	"github.com/weftmesh/weft/proxy/internal/fate"
	"github.com/weftmesh/weft/proxy/internal/h1"
	"github.com/weftmesh/weft/proxy/internal/message"
	"github.com/weftmesh/weft/proxy/internal/relay"
)

// tunnel carries an Upgrade or a CONNECT of HTTP/1: the request and, if the
// application agrees, bytes both ways afterwards.
func (in *Inbound) tunnel(x *exchange) {
	nc, err := in.dialApp(x.Context(), "tcp", x.session.target.String())
	if err != nil {
		in.failApp(x, err)
		return
	}
	call := h1.NewCall(nc, maxHead)
	defer call.Close()
	x.Guard(&x.guard)
	defer x.Guard(nil)
	x.guard.Set(call)
	defer x.guard.Set(nil)
	out := in.request(x)
	if x.upgrade != "" {
		out.Fields = out.Fields.Clone(2)
		out.Fields.Add("Connection", "Upgrade")
		out.Fields.Add("Upgrade", x.upgrade)
	}
	call.Begin(out)
	sent, err := relay.Send(x.Body(), call)
	var res *message.Response
	if err == nil {
		res, err = relay.Head(call, nil) // a tunnel has no use for hints
	}
	if err != nil {
		call.Abort(err)
		sent.Stop()
		in.failApp(x, err)
		return
	}
	connected := out.Method == http.MethodConnect && res.Status/100 == 2
	if !connected && (res.Status != http.StatusSwitchingProtocols || x.upgrade == "") {
		in.answer(x, res, call)
		sent.Stop()
		return
	}
	sent.Stop()
	x.guard.Set(nil)
	in.join(x, res, call)
}

// join passes the head of the answer on and joins the connections, with the bytes
// that either side has already sent.
func (in *Inbound) join(x *exchange, res *message.Response, call *h1.Call) {
	upgrade := res.Fields.Get("upgrade")
	hopByHop(&res.Fields)
	fate.Take(&res.Fields)
	if res.Status == http.StatusSwitchingProtocols {
		res.Fields.Add("Connection", "Upgrade")
		res.Fields.Add("Upgrade", upgrade)
	}
	res.Fields.Del("content-length") // what follows has no framing
	taker, ok := x.Client.(interface{ Tunnel() (net.Conn, error) })
	if !ok || x.Respond(res) != nil {
		x.Break(message.ErrAborted)
		return
	}
	client, err := taker.Tunnel()
	if err != nil {
		return
	}
	defer client.Close()
	x.end.Status = res.Status
	join(half(client), half(call.Tunnel()))
}

func half(c net.Conn) halfConn {
	if h, ok := c.(halfConn); ok {
		return h
	}
	return &detect.Conn{Conn: c}
}
