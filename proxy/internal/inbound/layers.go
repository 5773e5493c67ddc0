package inbound

import (
	"context"
	"log/slog"
	"net/http"
	"net/url"
	"strings"

	"github.com/weftmesh/weft/proxy/internal/allow"
	"github.com/weftmesh/weft/proxy/internal/fate"
	"github.com/weftmesh/weft/proxy/internal/origproto"
	"github.com/weftmesh/weft/proxy/internal/strict"
	"github.com/weftmesh/weft/proxy/internal/tell"
)

// exchange is what the layers know of one request.
type exchange struct {
	session  *session
	verdict  allow.Verdict
	upgraded bool // an HTTP/1 request that a peer carried over HTTP/2
	proto    origproto.Proto
	upgrade  []string // what an HTTP/1.1 client wants to switch to
	grpc     bool
	counts   *counts // once allowed
	end      tell.End
	fate     fate.Fate // once the application could not answer
}

type exchangeKey struct{}

func exchangeOf(r *http.Request) *exchange { return r.Context().Value(exchangeKey{}).(*exchange) }

const clientID = "L5d-Client-Id"

// limit refuses what exceeds the requests in flight, and opens the exchange.
func (in *Inbound) limit(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		x := &exchange{session: sessionOf(r), grpc: isGRPC(r)}
		r = r.WithContext(context.WithValue(r.Context(), exchangeKey{}, x))
		defer in.inFlight.Add(-1)
		if in.inFlight.Add(1) > int64(in.cfg.Inbound.MaxInFlight) {
			in.fail(w, r, failure{http.StatusServiceUnavailable, codeUnavailable, "in-flight limit exceeded", true, "loadshed"})
			return
		}
		next.ServeHTTP(w, r)
	})
}

// mesh reads and removes what peers' proxies say in headers, and tells the
// application who the client is. What a client says of itself is not believed.
func (in *Inbound) mesh(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		x := exchangeOf(r)
		if p, ok := origproto.Take(r.Header); ok && r.ProtoMajor == 2 {
			x.upgraded, x.proto = true, p
		}
		if isUpgrade(r) {
			x.upgrade = r.Header["Upgrade"]
		}
		// Before our own header is set: a client may name it in Connection.
		hopByHop(r.Header)
		r.Header.Del(clientID)
		if id := x.session.client.ID; id != "" {
			r.Header[clientID] = []string{id}
		}
		next.ServeHTTP(w, r)
	})
}

// allow asks the port's policy of this moment.
func (in *Inbound) allow(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		x := exchangeOf(r)
		s := x.session
		v := s.port.policy().HTTP(s.client, question(r))
		x.verdict = v
		switch {
		case v.Broken:
			in.fail(w, r, failure{http.StatusInternalServerError, codeInternal, "invalid server configuration", true, "unexpected"})
		case v.NoRoute:
			in.decided(tell.InboundHTTPNoRoute, s, v)
			in.fail(w, r, failure{http.StatusNotFound, codeNotFound, "no route found for request", false, ""})
		case !v.Allowed:
			in.decided(tell.InboundHTTPDeny, s, v)
			in.log.Info("request denied", "client", s.client.Addr.String(), "identity", s.client.ID, "target", s.target.String(), "server", v.Server.Name, "route", v.Route.Name)
			in.fail(w, r, failure{http.StatusForbidden, codePermissionDenied, "client is unauthorized", false, ""})
		default:
			x.counts = s.count(in.deps.Metrics, v, x.grpc)
			x.counts.allowed.Inc()
			if v.Audited {
				in.log.Info("request allowed by the audit policy", "client", s.client.Addr.String(), "identity", s.client.ID, "target", s.target.String())
			}
			next.ServeHTTP(w, r)
		}
	})
}

// question is the request as a policy sees it.
func question(r *http.Request) allow.Request {
	q := allow.Request{
		Method:    r.Method,
		Authority: r.Host,
		Path:      strict.Path(r),
		Header:    r.Header.Values,
	}
	var query url.Values
	q.Query = func(name string) []string {
		if query == nil {
			query = r.URL.Query()
		}
		return query[name]
	}
	return q
}

// filter applies the route's filters.
func (in *Inbound) filter(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for _, f := range exchangeOf(r).verdict.Filters {
			if f.Fail != "" {
				in.fail(w, r, failure{http.StatusInternalServerError, codeInternal, f.Fail, true, "unexpected"})
				return
			}
			if f.Redirect != nil && in.redirect(w, r, f.Redirect) {
				return
			}
			for _, h := range f.Add {
				r.Header.Add(h.Name, h.Value)
			}
			for _, h := range f.Set {
				r.Header.Set(h.Name, h.Value)
			}
			for _, name := range f.Remove {
				r.Header.Del(name)
			}
		}
		next.ServeHTTP(w, r)
	})
}

// tell counts the request and how it ends.
func (in *Inbound) tell(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		x := exchangeOf(r)
		ended := x.counts.begin()
		defer func() {
			if x.end.Status == 0 && x.end.Error == "" {
				x.end.Error = "CANCEL"
			}
			x.end.Success = x.end.Error == "" && succeeded(x.end)
			ended(x.end)
		}()
		next.ServeHTTP(w, r)
	})
}

// succeeded classifies as spec/proxy.md §6.7 says.
func succeeded(e tell.End) bool {
	switch e.GRPC {
	case "":
		return e.Status < 500
	case "2", "4", "7", "13", "14", "15":
		return false
	}
	return true
}

func isGRPC(r *http.Request) bool {
	return strings.HasPrefix(r.Header.Get("Content-Type"), "application/grpc")
}

// quiet keeps the library's complaints about clients out of the log unless asked
// for.
func quiet(log *slog.Logger) *logAdapter { return newLogAdapter(log, slog.LevelDebug) }
