package strict

import (
	"net/http"
	"strings"
)

// Path is the request's path byte by byte as the client wrote it. net/http parses
// paths and writes some of them in another way (/a|b as /a%7Cb), which is not for
// a proxy to do: what a policy judges, what goes on and what was signed by the
// client must be the same.
func Path(r *http.Request) string {
	path := r.RequestURI
	if r.URL.IsAbs() {
		_, path, _ = strings.Cut(path, "://")
		i := strings.IndexAny(path, "/?")
		if i < 0 {
			return "/"
		}
		path = path[i:]
	}
	if path, _, _ = strings.Cut(path, "?"); path == "" {
		return "/"
	}
	return path
}
