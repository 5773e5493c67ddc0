package inbound

import (
	"net/http"
	"strconv"

	"github.com/weftmesh/weft/proxy/internal/fate"
	"github.com/weftmesh/weft/proxy/internal/message"
	"github.com/weftmesh/weft/proxy/internal/origproto"
	"github.com/weftmesh/weft/proxy/internal/tell"
)

// gRPC status codes of synthesised answers.
const (
	codeDeadline         = 4
	codeNotFound         = 5
	codePermissionDenied = 7
	codeExhausted        = 8
	codeInternal         = 13
	codeUnavailable      = 14
)

// failure is an answer that the proxy makes itself (spec/proxy.md §9.3).
type failure struct {
	status  int
	grpc    int
	message string
	close   bool
	label   string // of inbound_http_errors_total; "" is not counted
}

// fail answers. The reason is told to mesh clients only.
func (in *Inbound) fail(x *exchange, f failure) {
	x.end = tell.End{Status: f.status}
	if f.label != "" {
		in.deps.Metrics.Counter(tell.InboundHTTPErrors, tell.Labels{{Name: "error", Value: f.label}}).Inc()
		in.log.Info("request failed", "client", x.session.client.Addr.String(), "target", x.session.target.String(), "error", f.message)
	}
	res := &message.Response{Version: x.req.Version, Status: f.status}
	h := &res.Fields
	h.Add("Content-Length", "0")
	tells := x.session.client.ID != ""
	if tells {
		h.Add("L5d-Proxy-Error", f.message)
		fate.Set(h, x.fate)
	}
	if x.upgraded {
		origproto.Set(h, origproto.Proto{Minor: x.proto.Minor})
	}
	if f.close {
		h.Add("Connection", "close") // over HTTP/2 it becomes a GOAWAY
		if tells {
			h.Add("L5d-Proxy-Connection", "close")
		}
	}
	if x.grpc && x.req.Version == message.HTTP2 {
		x.end = tell.End{Status: http.StatusOK, GRPC: strconv.Itoa(f.grpc)}
		res.Status = http.StatusOK
		h.Add("Content-Type", "application/grpc")
		h.Add("Grpc-Status", strconv.Itoa(f.grpc))
		if tells {
			h.Add("Grpc-Message", f.message)
		}
	}
	x.reply(res)
}

// reply answers with a head alone.
func (x *exchange) reply(res *message.Response) {
	err := x.Respond(res)
	if err == nil {
		err = x.Finish(nil)
	}
	if err != nil {
		x.Break(err)
	}
}
