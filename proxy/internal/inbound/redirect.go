package inbound

import (
	"net/http"

	"github.com/weftmesh/weft/proxy/internal/change"
	"github.com/weftmesh/weft/proxy/internal/message"
	"github.com/weftmesh/weft/proxy/internal/origproto"
	"github.com/weftmesh/weft/proxy/internal/tell"
)

// redirect answers with another place for the request. It reports false, and
// answers nothing, if that place is where the request already is.
func (in *Inbound) redirect(x *exchange, to *change.Redirect) bool {
	r := x.req
	place, elsewhere, err := to.To(r, r.Authority, x.verdict.Prefix)
	if err != nil {
		in.fail(x, failure{http.StatusInternalServerError, codeInternal, "unexpected error", true, "unexpected"})
		return true
	}
	if !elsewhere {
		return false
	}
	x.end = tell.End{Status: to.Status}
	res := &message.Response{Version: r.Version, Status: to.Status}
	res.Fields.Add("Content-Length", "0")
	res.Fields.Add("Location", place)
	if x.upgraded {
		origproto.Set(&res.Fields, origproto.Proto{Minor: x.proto.Minor})
	}
	x.reply(res)
	return true
}
