package change

import (
	"errors"
	"fmt"
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

// Check fails for what HTTP cannot carry.
func (w *Rewrite) Check() error {
	switch {
	case !message.ValidAuthority(w.Host):
		return fmt.Errorf("requests are to say that they go to the host %q", w.Host)
	case !isPath(w.Full), w.Prefix != nil && !isPath(*w.Prefix):
		return errors.New("requests are to ask for a path that is none")
	}
	return nil
}

// Apply changes r. To replace a prefix that is not there is ErrNoPrefix.
func (w *Rewrite) Apply(r *message.Request, matched Prefix) error {
	if w.Host != "" {
		r.Authority = w.Host
		if r.Fields.Has("host") {
			r.Fields.Set("host", w.Host)
		}
	}
	path, query, asks := strings.Cut(r.Target, "?")
	if path == "" {
		path = "/"
	}
	switch {
	case w.Full != "":
		path = w.Full
	case w.Prefix != nil:
		var err error
		if path, err = matched.replace(path, *w.Prefix); err != nil {
			return err
		}
	default:
		return nil
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
