package outbound

import (
	"fmt"
	"hash/fnv"

	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
	routesv1 "github.com/weftmesh/weft/proto/gen/weft/routes/v1"
	"github.com/weftmesh/weft/services/policy/internal/derive/route"
)

// defaultSession begins the name of the cookie or header of a session that has no
// name; the rest tells rules apart, of which one client may call several.
const defaultSession = "weft-session-"

// session reads how a rule keeps a client's requests together; nil if it does
// not. Source: the Gateway API (GEP-1619), with its defaults.
func session(r *route.Route, field string, row *busv1.SessionPersistence) (*routesv1.SessionPersistence, error) {
	if row == nil {
		return nil, nil
	}
	absolute, err := route.Timeout(field+".absoluteTimeout", row.GetAbsoluteTimeout())
	if err != nil {
		return nil, err
	}
	idle, err := route.Timeout(field+".idleTimeout", row.GetIdleTimeout())
	if err != nil {
		return nil, err
	}
	out := &routesv1.SessionPersistence{
		Name:            row.GetSessionName(),
		AbsoluteTimeout: unlessZero(absolute),
		IdleTimeout:     unlessZero(idle),
	}
	if out.Name == "" {
		h := fnv.New32a()
		_, _ = h.Write([]byte(r.String() + " " + field)) // it never fails
		out.Name = fmt.Sprintf("%s%08x", defaultSession, h.Sum32())
	}
	switch row.GetType() {
	case "", "Cookie":
		out.Kind = routesv1.SessionPersistence_KIND_COOKIE
	case "Header":
		out.Kind = routesv1.SessionPersistence_KIND_HEADER
	default:
		return nil, fmt.Errorf("%s.type: %q is not Cookie or Header", field, row.GetType())
	}
	if row.GetCookieLifetime() == "Permanent" {
		if absolute == 0 {
			return nil, fmt.Errorf("%s.absoluteTimeout: a permanent cookie needs one", field)
		}
		out.PermanentCookie = out.Kind == routesv1.SessionPersistence_KIND_COOKIE
	}
	return out, nil
}
