package outbound

import (
	"github.com/weftmesh/weft/proxy/internal/balance"
	"github.com/weftmesh/weft/proxy/internal/fate"
	"github.com/weftmesh/weft/proxy/internal/tell"
)

// elsewhere reports whether the answer says only that the endpoint's proxy could
// not get one from its application, so that the request goes to another endpoint:
// then the attempt is ended, and what became of the request is returned. If the
// applications of all others are gone, too, the answer is the truth and the
// client gets it at once, as in Linkerd. safe says that the request may be sent
// twice.
func (x *exchange) elsewhere(t *try, m *member, moves int, safe bool) fate.Fate {
	f := fate.Take(&t.res.Fields)
	switch {
	case f == "" || !t.lease.Client.Meshed(): // anybody may write a header
		return ""
	case f == fate.Lost && !safe:
		return ""
	case moves >= maxMoves || !x.again() || x.gone() || x.pool == nil || !x.pool.Hope(m):
		return ""
	}
	verdict := balance.Failure
	if f == fate.Unsent { // as one that cannot be connected to: it is left alone for a while
		verdict = balance.Neutral
		m.Gone()
	}
	t.answer.Drop()
	t.end(tell.End{Status: t.res.Status}, outcome{}, verdict, x.o.since())
	return f
}
