package resolve

import (
	"net"
	"net/url"
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

// To is where the request is sent: false if that is where it already is, or if
// the path to be replaced is not there. prefix is what the route matched.
func (d *Redirect) To(r *message.Request, authority, prefix string) (string, bool) {
	path, err := url.PathUnescape(r.Path())
	if err != nil {
		path = r.Path()
	}
	from := url.URL{Scheme: "http", Host: authority, Path: path, RawQuery: r.Query()}
	to := from
	if d.Scheme != "" {
		to.Scheme = d.Scheme
	}
	host, port, err := net.SplitHostPort(authority)
	if err != nil {
		host, port = authority, ""
	}
	if d.Host != "" {
		host = d.Host
	}
	if d.Port != 0 {
		port = strconv.Itoa(d.Port)
	} else if d.Scheme != "" {
		port = ""
	}
	to.Host = host
	usual := map[string]string{"http": "80", "https": "443"}[to.Scheme]
	if port != "" && port != usual {
		to.Host = net.JoinHostPort(host, port)
	}
	switch {
	case d.Full != "":
		to.Path = d.Full
	case d.Prefix != nil:
		rest, ok := strings.CutPrefix(to.Path, strings.TrimSuffix(prefix, "/"))
		if !ok {
			return "", false
		}
		to.Path = strings.TrimSuffix(*d.Prefix, "/") + rest
		if !strings.HasPrefix(to.Path, "/") {
			to.Path = "/" + to.Path
		}
	}
	return to.String(), to != from
}
