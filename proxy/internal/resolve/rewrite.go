package resolve

import (
	"errors"
	"strings"

	"github.com/weftmesh/weft/proxy/internal/message"
)

// Rewrite changes where a request says it goes, on its way to the backend. Empty
// fields keep what was asked for; the query stays.
type Rewrite struct {
	Host   string
	Full   string  // replaces the path
	Prefix *string // in place of the prefix that matched
}

// Mirror sends copies of a share of the requests somewhere, and forgets the answers.
type Mirror struct {
	To    Backend
	Ratio float64 // of 1
}

// ErrNoPrefix means that a prefix was to be replaced in a request that no prefix
// has matched.
var ErrNoPrefix = errors.New("the route replaces a prefix that the request does not have")

// Apply changes r, which matched by prefix, "" if by none.
func (w *Rewrite) Apply(r *message.Request, prefix string) error {
	if w.Host != "" {
		r.Authority = w.Host
		if r.Fields.Has("host") {
			r.Fields.Set("host", w.Host)
		}
	}
	if w.Full == "" && w.Prefix == nil {
		return nil
	}
	path, query, asks := strings.Cut(r.Target, "?")
	if path == "" {
		path = "/"
	}
	switch {
	case w.Full != "":
		path = w.Full
	case prefix == "":
		return ErrNoPrefix
	default:
		rest, ok := CutPrefix(path, prefix)
		if !ok {
			return ErrNoPrefix
		}
		path = strings.TrimSuffix(*w.Prefix, "/") + rest
	}
	if !strings.HasPrefix(path, "/") {
		path = "/" + path
	}
	if asks {
		path += "?" + query
	}
	r.Target = path
	return nil
}

// CutPrefix takes a prefix off a path, segment by segment: what is left is empty
// or begins with a slash.
func CutPrefix(path, prefix string) (rest string, ok bool) {
	rest, ok = strings.CutPrefix(path, strings.TrimSuffix(prefix, "/"))
	return rest, ok && (rest == "" || rest[0] == '/')
}
