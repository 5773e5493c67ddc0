package h2

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"golang.org/x/net/http2"

	"github.com/weftmesh/weft/proxy/internal/frame"
	"github.com/weftmesh/weft/proxy/internal/message"
)

// saw is what a server makes of a request.
func saw(method, authority, target string, fields []string, body []byte, trailer string) string {
	return fmt.Sprintf("%q %q %q %q %q %q", method, authority, target, fields, body, trailer)
}

// collect reads a request whole, answers it, and returns what it saw.
func collect(s *Stream, seen chan<- string) {
	defer s.Done()
	r := s.Request()
	var body []byte
	trailer := ""
	if b := s.Body(); b != nil {
		for {
			p, err := b.Next()
			if errors.Is(err, io.EOF) {
				trailer = b.Trailer().Get("x-trailer")
				break
			}
			if err != nil {
				return
			}
			body = append(body, p...)
		}
	}
	seen <- saw(strings.Clone(r.Method), strings.Clone(r.Authority), strings.Clone(r.Target), r.Fields.Keep().Values("x-a"), body, trailer)
	if s.Respond(&message.Response{Status: 204}) == nil {
		_ = s.Finish(nil)
	}
}

// theirs does the same with net/http's server.
func theirs(seen chan<- string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		seen <- saw(r.Method, r.Host, r.RequestURI, r.Header["X-A"], body, r.Trailer.Get("X-Trailer"))
		w.WriteHeader(http.StatusNoContent)
	})
}

// request is what the fuzzer chooses of one.
type request struct {
	method, authority, target, value, more, length, trailer string
	body                                                    []byte
}

func (q request) send(r *raw) {
	lines := []string{":method: " + q.method, ":scheme: http", ":path: " + q.target, ":authority: " + q.authority, "x-a: " + q.value, "trailer: x-trailer"}
	if q.more != "" {
		lines = append(lines, "x-a: "+q.more)
	}
	if q.length != "" {
		lines = append(lines, "content-length: "+q.length)
	}
	r.headers(1, false, lines...)
	r.must(r.WriteData(1, q.trailer == "", q.body))
	if q.trailer != "" {
		r.headers(1, true, "x-trailer: "+q.trailer)
	}
}

// taken sends the request to a server and returns how that reacts, and what it saw.
func (q request) taken(t *testing.T, serve func(net.Conn, chan<- string)) (outcome, says string) {
	t.Helper()
	near, far := pair(t)
	seen := make(chan string, 1)
	done := make(chan struct{})
	go func() { defer close(done); serve(far, seen) }()
	r := newRaw(t, near)
	r.send([]byte(frame.Preface))
	r.must(r.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 20}))
	q.send(r)
	outcome = r.outcome(1)
	_ = near.Close()
	<-done
	select {
	case says = <-seen:
	default:
	}
	return outcome, says
}

// FuzzAgainstNetHTTP has two servers read the same request. What we take, net/http
// takes too, and for the same.
func FuzzAgainstNetHTTP(f *testing.F) {
	f.Add("GET", "a.test", "/x?y", "v", "", "", "", []byte(nil))
	f.Add("POST", "a.test:80", "/%2F", "v", "w", "2", "t", []byte("ok"))
	f.Add("PUT", "[::1]:80", "/a//b/../c;d", " v", "w\t", "1", "", []byte("ok"))
	f.Add("POST", "a", "*", "v\r\nx: y", "", "+2", "t\x00", []byte("ok"))
	f.Fuzz(func(t *testing.T, method, authority, target, value, more, length, trailer string, body []byte) {
		if method == http.MethodConnect || len(body) > 16<<10 {
			return // CONNECT has no path, and a piece is one frame here
		}
		q := request{method, authority, target, value, more, length, trailer, body}
		ours, said := q.taken(t, func(c net.Conn, seen chan<- string) {
			_ = Server(c, Config{Handle: func(s *Stream) { go collect(s, seen) }}).Run()
		})
		if ours != "status 204" {
			return
		}
		if _, err := url.ParseRequestURI(target); err != nil {
			return // targets are passed on as they are, whatever is escaped in them
		}
		other, heard := q.taken(t, func(c net.Conn, seen chan<- string) {
			new(http2.Server).ServeConn(c, &http2.ServeConnOpts{Handler: theirs(seen)}) //nolint:staticcheck // x/net's own, of which this is the test
		})
		if other != ours || said != heard {
			t.Errorf("%+v:\nwe  %s, %s\nthey %s, %s", q, ours, said, other, heard)
		}
	})
}

// FuzzRoundTrip sends requests from our client to our server, which sees them as
// they were, unless the client's fields cannot be carried as they are.
func FuzzRoundTrip(f *testing.F) {
	f.Add("/x?y", "v", "w", "t", []byte("ok"), uint16(1))
	f.Add("/", "", "\x80", " ", bytes.Repeat([]byte("x"), 70_000), uint16(5000))
	f.Fuzz(func(t *testing.T, target, value, more, trailer string, body []byte, piece uint16) {
		if !ValidValue(value) || !ValidValue(more) || !ValidValue(trailer) || len(target) > 1000 || target == "" || target[0] != '/' || !visible(target) || len(body) > 200_000 {
			return
		}
		near, far := net.Pipe()
		seen := make(chan string, 1)
		server := Server(far, Config{Handle: func(s *Stream) { go collect(s, seen) }})
		c := Client(near, Config{})
		ended := make(chan struct{}, 2)
		for _, end := range []*Conn{server, c} {
			go func() { _ = end.Run(); ended <- struct{}{} }()
		}
		r := &message.Request{Method: "POST", Authority: "a.test", Target: target, Length: message.Unknown, Fields: message.Fields{{Name: "X-A", Value: value}, {Name: "x-a", Value: more}}}
		s, err := c.Open(t.Context(), r, false)
		if err != nil {
			t.Fatal(err)
		}
		for rest := body; len(rest) > 0; {
			n := min(len(rest), int(piece)+1)
			if err := s.Write(rest[:n]); err != nil {
				t.Fatal(err)
			}
			rest = rest[n:]
		}
		if err := s.Finish(message.Fields{{Name: "X-Trailer", Value: trailer}}); err != nil {
			t.Fatal(err)
		}
		if res, err := s.Response(); err != nil || res.Status != 204 {
			t.Fatalf("%v, %v", res, err)
		}
		if got, want := <-seen, saw("POST", "a.test", target, []string{value, more}, body, trailer); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
		s.Close()
		c.Close()
		server.Close()
		<-ended
		<-ended
	})
}
