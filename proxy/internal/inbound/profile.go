package inbound

import (
	"errors"
	"time"
)

// errLate ends a request that its service's profile gives no more time.
var errLate = errors.New("request timed out by its service's profile")

// profile counts the request by the route of its service's profile, and bounds its
// time by it.
func (in *Inbound) profile(next handler) handler {
	if in.deps.Profiles == nil {
		return next
	}
	return func(x *exchange) {
		x.route = in.deps.Profiles.Route(x.Context(), x.req)
		if x.route == nil {
			next(x)
			return
		}
		began := time.Now()
		x.route.Begin()
		defer func() {
			x.route.End(x.end.Status, x.end.Error == "" && x.succeeded(), time.Since(began))
		}()
		if t := x.route.Timeout(); t > 0 {
			guard := &x.guard
			timer := time.AfterFunc(t, func() { guard.Abort(errLate) })
			defer func() {
				if !timer.Stop() {
					x.whole = false // the timer may yet look at the exchange
				}
			}()
		}
		next(x)
	}
}
