package inbound

import (
	"log"
	"log/slog"
	"net/http"
	"strconv"

	"github.com/weftmesh/weft/proxy/internal/fate"
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
func (in *Inbound) fail(w http.ResponseWriter, r *http.Request, f failure) {
	x := exchangeOf(r)
	x.end = tell.End{Status: f.status}
	if f.label != "" {
		in.deps.Metrics.Counter(tell.InboundHTTPErrors, tell.Labels{
			{Name: "direction", Value: "inbound"}, {Name: "error", Value: f.label},
		}).Inc()
		in.log.Info("request failed", "client", x.session.client.Addr.String(), "target", x.session.target.String(), "error", f.message)
	}
	h := w.Header()
	h["Date"] = nil // the library would add one
	h.Set("Content-Length", "0")
	tells := x.session.client.ID != ""
	if tells {
		h.Set("L5d-Proxy-Error", f.message)
		fate.Set(h, x.fate)
	}
	if x.upgraded {
		origproto.Set(h, origproto.Proto{Minor: x.proto.Minor})
	}
	if f.close {
		h.Set("Connection", "close") // on HTTP/2 the library makes a GOAWAY of it
		if tells {
			h.Set("L5d-Proxy-Connection", "close")
		}
	}
	if x.grpc && r.ProtoMajor == 2 {
		x.end = tell.End{Status: http.StatusOK, GRPC: strconv.Itoa(f.grpc)}
		h.Set("Content-Type", "application/grpc")
		h.Set("Grpc-Status", strconv.Itoa(f.grpc))
		if tells {
			h.Set("Grpc-Message", f.message)
		}
		w.WriteHeader(http.StatusOK)
		return
	}
	h["Content-Type"] = nil
	w.WriteHeader(f.status)
}

type logAdapter = log.Logger

func newLogAdapter(l *slog.Logger, level slog.Level) *logAdapter {
	return slog.NewLogLogger(l.Handler(), level)
}
