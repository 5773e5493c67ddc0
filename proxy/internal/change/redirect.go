package change

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"

	routepb "github.com/linkerd/linkerd2-proxy-api/go/http_route"
	typespb "github.com/linkerd/linkerd2-proxy-api/go/http_types"

	"github.com/weftmesh/weft/proxy/internal/message"
)

// Redirect sends the client elsewhere. Empty fields keep what was asked for.
type Redirect struct {
	Scheme, Host string
	Port         int
	Full         string // replaces the path and the query
	Prefix       *string
	Status       int
}

// RedirectOf reads a message.
func RedirectOf(r *routepb.RequestRedirect) (*Redirect, error) {
	out := &Redirect{Host: r.GetHost(), Port: int(r.GetPort()), Status: int(r.GetStatus())}
	if out.Status == 0 {
		out.Status = 301
	}
	if r.GetScheme() != nil {
		if out.Scheme = schemeOf(r.GetScheme()); out.Scheme == "" {
			return nil, errors.New("a redirect to a scheme that is not known")
		}
	}
	switch p := r.GetPath().GetReplace().(type) {
	case *routepb.PathModifier_Full:
		out.Full = p.Full
	case *routepb.PathModifier_Prefix:
		out.Prefix = &p.Prefix
	}
	return out, out.check()
}

// schemeOf is "" for what is none.
func schemeOf(s *typespb.Scheme) string {
	switch k := s.GetType().(type) {
	case *typespb.Scheme_Unregistered:
		if s := strings.ToLower(k.Unregistered); message.SchemeName(s) {
			return s
		}
	case *typespb.Scheme_Registered_:
		return strings.ToLower(typespb.Scheme_Registered_name[int32(k.Registered)])
	}
	return ""
}

func (d *Redirect) check() error {
	switch {
	case d.Status < 300 || d.Status > 399:
		return fmt.Errorf("a redirect with the status %d", d.Status)
	case !message.ValidAuthority(d.Host):
		return fmt.Errorf("a redirect to the host %q", d.Host)
	case d.Port < 0 || d.Port > 65535:
		return fmt.Errorf("a redirect to port %d", d.Port)
	case !isPath(d.Full), d.Prefix != nil && !isPath(*d.Prefix):
		return errors.New("a redirect to a path that is none")
	}
	return nil
}

// To is where the request is sent: false if that is where it already is. To replace a
// prefix that is not there is ErrNoPrefix. Paths stay as they were written.
func (d *Redirect) To(r *message.Request, authority string, matched Prefix) (string, bool, error) {
	scheme, path, query := "http", r.Path(), r.Query()
	host, port, err := net.SplitHostPort(authority)
	if err != nil {
		host, port = authority, ""
	}
	from := place(scheme, host, port, path, query)
	if d.Scheme != "" {
		scheme, port = d.Scheme, "" // a scheme has a port of its own
	}
	if d.Host != "" {
		host = d.Host
	}
	if d.Port != 0 {
		port = strconv.Itoa(d.Port)
	}
	switch {
	case d.Full != "":
		path, query, _ = strings.Cut(d.Full, "?")
	case d.Prefix != nil:
		if path, err = matched.replace(path, *d.Prefix); err != nil {
			return "", false, err
		}
	}
	to := place(scheme, host, port, path, query)
	return to, to != from, nil
}

// place is a URI; a scheme's own port is left out.
func place(scheme, host, port, path, query string) string {
	own := scheme == "http" && port == "80" || scheme == "https" && port == "443"
	if port != "" && !own {
		host = net.JoinHostPort(strings.Trim(host, "[]"), port)
	} else if strings.Contains(host, ":") && !strings.HasPrefix(host, "[") {
		host = "[" + host + "]"
	}
	if !strings.HasPrefix(path, "/") {
		path = "/" + path
	}
	if query != "" {
		path += "?" + query
	}
	return scheme + "://" + host + path
}
