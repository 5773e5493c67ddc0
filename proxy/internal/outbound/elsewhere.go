package outbound

import (
	"github.com/weftmesh/weft/proxy/internal/balance"
	"github.com/weftmesh/weft/proxy/internal/fate"
	"github.com/weftmesh/weft/proxy/internal/tell"
)

// elsewhere reports whether the answer says only that the endpoint's proxy could
// not get one from its application, so that the request goes to another endpoint,
// if one is ready; the attempt is ended then. If none is, the answer is the truth
// and the client gets it at once, as in Linkerd.
func (x *exchange) elsewhere(t *try, m *member, moves int, safe bool) bool {
	f := fate.Take(t.res.Header)
	switch {
	case f == "" || !t.lease.Client.Meshed(): // anybody may write a header
		return false
	case f == fate.Lost && (!safe || moves > 0):
		return false
	case moves >= maxMoves || !x.again() || x.r.Context().Err() != nil || !x.other(m):
		return false
	}
	verdict := balance.Failure
	if f == fate.Unsent { // as one that cannot be connected to: it is left alone for a while
		verdict = balance.Neutral
		m.Down()
	}
	_ = t.res.Body.Close()
	t.cancel()
	t.end(tell.End{Status: t.res.StatusCode}, verdict)
	return true
}
