package resolve

import (
	"net"
	"strconv"
	"strings"

	"github.com/weftmesh/weft/proxy/internal/message"
)

// A Filter changes a request or response, or answers in place of the backend.
// Exactly one field is set.
type Filter struct {
	Fail     *Fail
	Request  *Modify
	Response *Modify
	Redirect *Redirect
	Rewrite  *Rewrite
	Mirror   *Mirror
}

// Fail answers a share of the requests.
type Fail struct {
	Status  int  // of HTTP, or the gRPC code if GRPC
	GRPC    bool // answer as gRPC does
	Message string
	Ratio   float64 // of 1
}

// Modify changes headers: Add, then Set, then Remove.
type Modify struct {
	Add, Set []Header
	Remove   []string
}

// A Header is one field.
type Header struct{ Name, Value string }

// Apply changes h.
func (m *Modify) Apply(h *message.Fields) {
	for _, f := range m.Add {
		h.Add(f.Name, f.Value)
	}
	for _, f := range m.Set {
		h.Set(f.Name, f.Value)
	}
	for _, name := range m.Remove {
		h.Del(name)
	}
}

// Redirect sends the client elsewhere. Empty fields keep what was asked for.
type Redirect struct {
	Scheme, Host string
	Port         int
	Full         string // replaces the path
	Prefix       *string
	Status       int
}

// To is where the request is sent: false if that is where it already is. prefix
// is what the route matched, "" if nothing; to replace one that is not there is
// ErrNoPrefix. Paths stay as they were written.
func (d *Redirect) To(r *message.Request, authority, prefix string) (string, bool, error) {
	scheme, path := "http", r.Path()
	host, port, err := net.SplitHostPort(authority)
	if err != nil {
		host, port = authority, ""
	}
	from := place(scheme, host, port, path)
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
		path = d.Full
	case d.Prefix != nil:
		rest, ok := CutPrefix(path, prefix)
		if !ok || prefix == "" {
			return "", false, ErrNoPrefix
		}
		path = strings.TrimSuffix(*d.Prefix, "/") + rest
	}
	to := place(scheme, host, port, path)
	if to == from {
		return "", false, nil
	}
	if query := r.Query(); query != "" && !strings.Contains(path, "?") {
		to += "?" + query
	}
	return to, true, nil
}

// place is a URI; a scheme's own port is left out.
func place(scheme, host, port, path string) string {
	own := scheme == "http" && port == "80" || scheme == "https" && port == "443"
	if port != "" && !own {
		host = net.JoinHostPort(strings.Trim(host, "[]"), port)
	} else if strings.Contains(host, ":") && !strings.HasPrefix(host, "[") {
		host = "[" + host + "]"
	}
	if !strings.HasPrefix(path, "/") {
		path = "/" + path
	}
	return scheme + "://" + host + path
}
