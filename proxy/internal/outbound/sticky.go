package outbound

import (
	"time"

	"github.com/weftmesh/weft/proxy/internal/message"
	"github.com/weftmesh/weft/proxy/internal/resolve"
	"github.com/weftmesh/weft/proxy/internal/session"
)

// sticky is what a client's session says of one request.
type sticky struct {
	*resolve.Session
	token session.Token
	known bool // the client has brought a token that holds
}

// newSticky reads the request's token; nil if the rule keeps no sessions.
func newSticky(s *resolve.Session, r *message.Request) *sticky {
	if s == nil {
		return nil
	}
	k := &sticky{Session: s}
	text := ""
	if s.Header {
		text = r.Fields.Get(s.Name)
	} else {
		text = session.FromCookies(r.Fields.Values("cookie"), s.Name)
	}
	k.token, k.known = session.Parse(text)
	k.known = k.known && k.token.Valid(time.Now(), s.Absolute, s.Idle)
	return k
}

// place takes a place at the endpoint that the session names, if it is among the
// rule's and takes requests. It may be of a backend to which no weight leads.
func (k *sticky) place(d split) (*backend, *lease) {
	if k == nil || !k.known {
		return nil, nil
	}
	for i := range d.backends {
		b := &d.backends[i]
		if b.pool == nil {
			continue
		}
		l, ok := b.pool.Prefer(func(e resolve.Endpoint) bool { return session.Key(k.Name, e.Addr) == k.token.Endpoint })
		if ok {
			return b, l
		}
	}
	return nil, nil
}

// answered gives the client the token for its next request, where it needs a new
// one: the endpoint is another, or the time of the last use counts.
func (k *sticky) answered(by resolve.Endpoint, res *message.Response) {
	if k == nil {
		return
	}
	now, key := time.Now(), session.Key(k.Name, by.Addr)
	if k.known && key == k.token.Endpoint && k.Idle <= 0 {
		return
	}
	t := session.Token{Endpoint: key, Began: now, Used: now}
	if k.known {
		t.Began = k.token.Began
	}
	if k.Header {
		res.Fields.Set(k.Name, t.String())
		return
	}
	life := time.Duration(0)
	if k.Permanent {
		life = max(k.Absolute-now.Sub(t.Began), time.Second)
	}
	res.Fields.Add("Set-Cookie", t.Cookie(k.Name, life))
}
