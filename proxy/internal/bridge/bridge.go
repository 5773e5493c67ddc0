// Package bridge lets a handler of net/http answer requests that the proxy's own
// codecs have read. It is for the admin port, not for traffic.
package bridge

import (
	"errors"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"

	"github.com/weftmesh/weft/proxy/internal/message"
)

// Serve has h answer the client's request. remote is the client's address.
func Serve(h http.Handler, c message.Client, remote string) {
	r := c.Request()
	u, err := url.ParseRequestURI(r.Target)
	if err != nil {
		_ = c.Respond(&message.Response{Version: r.Version, Status: http.StatusBadRequest})
		_ = c.Finish(nil)
		return
	}
	req := &http.Request{
		Method: r.Method, URL: u, Host: r.Authority, RequestURI: r.Target, RemoteAddr: remote, Header: http.Header{}, ContentLength: r.Length,
		Proto: "HTTP/1.1", ProtoMajor: r.Version.Major(), ProtoMinor: r.Version.Minor(), Body: http.NoBody,
	}
	for _, f := range r.Fields {
		if !message.Is(f.Name, "host") {
			req.Header.Add(f.Name, f.Value)
		}
	}
	if body := c.Body(); body != nil {
		req.Body = &reader{body: body}
	}
	w := &writer{c: c, version: r.Version, header: http.Header{}}
	h.ServeHTTP(w, req.WithContext(c.Context()))
	w.WriteHeader(http.StatusOK)
	if w.err == nil {
		w.err = c.Finish(nil)
	}
	if w.err != nil {
		c.Break(w.err)
	}
}

type reader struct {
	body message.Body
	rest []byte
}

func (r *reader) Read(p []byte) (int, error) {
	for len(r.rest) == 0 {
		var err error
		if r.rest, err = r.body.Next(); err != nil {
			return 0, err
		}
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

func (*reader) Close() error { return nil }

type writer struct {
	c       message.Client
	version message.Version
	header  http.Header
	wrote   bool
	err     error
}

func (w *writer) Header() http.Header { return w.header }

func (w *writer) WriteHeader(status int) {
	if w.wrote {
		return
	}
	w.wrote = true
	res := &message.Response{Version: w.version, Status: status, Length: message.Unknown}
	var names []string
	for name := range w.header {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		for _, v := range w.header[name] {
			res.Fields.Add(name, v)
		}
	}
	if n, err := strconv.ParseInt(w.header.Get("Content-Length"), 10, 64); err == nil {
		res.Length = n
	}
	if status == http.StatusNoContent || status == http.StatusNotModified {
		res.Length = 0
	}
	w.err = w.c.Respond(res)
}

func (w *writer) Write(p []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	if w.err == nil {
		w.err = w.c.Write(p)
	}
	if w.err != nil {
		return 0, errors.Join(io.ErrClosedPipe, w.err)
	}
	return len(p), nil
}

// Flush is http.Flusher's.
func (w *writer) Flush() {
	w.WriteHeader(http.StatusOK)
	if w.err == nil {
		w.err = w.c.Flush()
	}
}
