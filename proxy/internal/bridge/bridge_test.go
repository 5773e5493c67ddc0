package bridge

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weftmesh/weft/proxy/internal/message"
)

// client keeps what it is answered.
type client struct {
	message.Client
	req    *message.Request
	body   message.Body
	res    *message.Response
	got    strings.Builder
	whole  bool
	broken bool
}

func (c *client) Request() *message.Request         { return c.req }
func (c *client) Body() message.Body                { return c.body }
func (c *client) Context() context.Context          { return context.Background() }
func (c *client) Respond(r *message.Response) error { c.res = r; return nil }
func (c *client) Write(p []byte) error              { c.got.Write(p); return nil }
func (c *client) Flush() error                      { return nil }
func (c *client) Finish(message.Fields) error       { c.whole = true; return nil }
func (c *client) Break(error)                       { c.broken = true }

type text string

func (t *text) Next() ([]byte, error) {
	if *t == "" {
		return nil, io.EOF
	}
	p := *t
	*t = ""
	return []byte(p), nil
}
func (*text) Ready() bool             { return true }
func (*text) Trailer() message.Fields { return nil }
func (*text) Abort(error)             {}

func TestServe(t *testing.T) {
	body := text("hello")
	c := &client{req: &message.Request{Version: message.HTTP11, Method: "PUT", Authority: "a", Target: "/x?y=z", Length: 5}, body: &body}
	c.req.Fields.Add("Host", "a")
	c.req.Fields.Add("X-One", "1")
	Serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		if r.Host != "a" || r.URL.Path != "/x" || r.FormValue("y") != "z" || r.Header.Get("X-One") != "1" || r.Header.Get("Host") != "" || r.RemoteAddr != "1.2.3.4:5" {
			t.Errorf("%v", r)
		}
		w.Header().Set("X-Two", "2")
		w.WriteHeader(http.StatusAccepted)
		_, _ = w.Write(b)
		w.(http.Flusher).Flush()
	}), c, "1.2.3.4:5")
	want := &message.Response{Version: message.HTTP11, Status: 202, Length: message.Unknown, Fields: message.Fields{{Name: "X-Two", Value: "2"}}}
	if diff := cmp.Diff(want, c.res); diff != "" || c.got.String() != "hello" || !c.whole || c.broken {
		t.Errorf("%q, whole %v (-want +got):\n%s", c.got.String(), c.whole, diff)
	}
}

func TestServeLengths(t *testing.T) {
	for _, tt := range []struct {
		name   string
		h      http.HandlerFunc
		target string
		status int
		length int64
	}{
		{"nothing", func(http.ResponseWriter, *http.Request) {}, "/", 200, message.Unknown},
		{"no content", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(204) }, "/", 204, 0},
		{"a length", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "2")
			_, _ = io.WriteString(w, "ok")
		}, "/", 200, 2},
		{"a target that is none", nil, "/%zz", 400, 0},
	} {
		c := &client{req: &message.Request{Method: "GET", Target: tt.target}}
		Serve(tt.h, c, "")
		if c.res.Status != tt.status || c.res.Length != tt.length || !c.whole {
			t.Errorf("%s: %+v", tt.name, c.res)
		}
	}
}
