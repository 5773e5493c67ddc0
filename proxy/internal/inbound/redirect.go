package inbound

import (
	"net"
	"net/http"
	"net/url"
	"strings"

	"github.com/weftmesh/weft/proxy/internal/allow"
	"github.com/weftmesh/weft/proxy/internal/message"
	"github.com/weftmesh/weft/proxy/internal/origproto"
	"github.com/weftmesh/weft/proxy/internal/tell"
)

// redirect answers with another place for the request. It reports false, and
// answers nothing, if that place is where the request already is.
func (in *Inbound) redirect(x *exchange, to *allow.Redirect) bool {
	r := x.req
	from := url.URL{Scheme: "http", Host: r.Authority, RawQuery: r.Query()}
	var err error
	if from.Path, err = url.PathUnescape(r.Path()); err == nil {
		from.RawPath = r.Path()
	}
	place, ok := locate(from, to, x.verdict)
	if !ok || err != nil {
		in.fail(x, failure{http.StatusInternalServerError, codeInternal, "unexpected error", true, "unexpected"})
		return true
	}
	if place == from.String() {
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

// locate is the redirect's target: what it does not name stays. A replaced
// prefix needs a route that matched by one.
func locate(u url.URL, to *allow.Redirect, v allow.Verdict) (string, bool) {
	host, port := u.Hostname(), u.Port()
	if to.Scheme != "" {
		u.Scheme, port = to.Scheme, "" // a scheme has a port of its own
	}
	if to.Host != "" {
		host = to.Host
	}
	if to.Port != 0 {
		port = portText(to.Port)
	}
	if u.Scheme == "http" && port == "80" || u.Scheme == "https" && port == "443" {
		port = ""
	}
	switch {
	case port != "":
		u.Host = net.JoinHostPort(host, port)
	case strings.Contains(host, ":"):
		u.Host = "[" + host + "]"
	default:
		u.Host = host
	}
	switch {
	case to.Path != "":
		path, query, asks := strings.Cut(to.Path, "?")
		if u.Path, u.RawPath = path, ""; asks {
			u.RawQuery = query
		}
	case to.Prefix != nil && !v.ByPrefix:
		return "", false
	case to.Prefix != nil:
		rest := strings.TrimPrefix(strings.TrimPrefix(u.EscapedPath(), v.Prefix), "/")
		path := strings.TrimRight(*to.Prefix, "/")
		if rest != "" || path == "" {
			path += "/" + rest
		}
		parsed, err := url.ParseRequestURI(path)
		if err != nil {
			return "", false
		}
		u.Path, u.RawPath = parsed.Path, parsed.RawPath
	}
	return u.String(), true
}
