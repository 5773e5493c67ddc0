package h1

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weftmesh/weft/proxy/internal/clock"
	"github.com/weftmesh/weft/proxy/internal/message"
)

func pair(t testing.TB) (near, far net.Conn) {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	if near, err = new(net.Dialer).DialContext(t.Context(), "tcp", l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if far, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = near.Close(); _ = far.Close() })
	_ = near.SetDeadline(time.Now().Add(20 * time.Second))
	return near, far
}

// echo answers with the body and trailer of the request.
func echo(x *Exchange) {
	r := x.Request()
	res := &message.Response{Status: 200, Length: r.Length}
	res.Fields.Add("X-Line", fmt.Sprintf("%s %s %s", r.Method, r.Authority, r.Target))
	body := x.Body()
	_ = x.Respond(res)
	for body != nil {
		if !body.Ready() {
			_ = x.Flush()
		}
		p, err := body.Next()
		if errors.Is(err, io.EOF) {
			_ = x.Finish(body.Trailer())
			return
		}
		if err != nil {
			x.Break(err)
			return
		}
		_ = x.Write(p)
	}
	_ = x.Finish(nil)
}

func serve(t testing.TB, handle func(*Exchange)) (net.Conn, *Conn, chan struct{}) {
	t.Helper()
	near, far := pair(t)
	c := NewConn(far, Config{Handle: handle, MaxHead: 8 << 10})
	done := make(chan struct{})
	go func() { defer close(done); c.Serve() }()
	return near, c, done
}

// TestServes is what a client gets for what it sends, byte for byte.
func TestServes(t *testing.T) {
	for _, tt := range []struct{ name, in, want string }{
		{"GET", "GET /x HTTP/1.1\r\nHost: a\r\n\r\n", "HTTP/1.1 200 OK\r\nX-Line: GET a /x\r\nContent-Length: 0\r\n\r\n"},
		{"close", "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", "HTTP/1.1 200 OK\r\nX-Line: GET a /\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"},
		{"HEAD", "HEAD / HTTP/1.1\r\nHost: a\r\n\r\n", "HTTP/1.1 200 OK\r\nX-Line: HEAD a /\r\n\r\n"},
		{"a length", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nok", "HTTP/1.1 200 OK\r\nX-Line: POST a /\r\nContent-Length: 2\r\n\r\nok"},
		{
			"chunks", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2;x=y\r\nok\r\n03\r\nyes\r\n0\r\nT: 1\r\nContent-Length: 9\r\n\r\n",
			"HTTP/1.1 200 OK\r\nX-Line: POST a /\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n3\r\nyes\r\n0\r\nT: 1\r\n\r\n",
		},
		{"1.0", "GET / HTTP/1.0\r\n\r\n", "HTTP/1.0 200 OK\r\nX-Line: GET  /\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"},
		{"1.0 that stays", "GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n", "HTTP/1.0 200 OK\r\nX-Line: GET  /\r\nContent-Length: 0\r\nConnection: keep-alive\r\n\r\n"},
		{"empty lines before", "\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", "HTTP/1.1 200 OK\r\nX-Line: GET a /\r\nContent-Length: 0\r\n\r\n"},
		{
			"two at once", "POST /1 HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\n1GET /2 HTTP/1.1\r\nHost: a\r\n\r\n",
			"HTTP/1.1 200 OK\r\nX-Line: POST a /1\r\nContent-Length: 1\r\n\r\n1HTTP/1.1 200 OK\r\nX-Line: GET a /2\r\nContent-Length: 0\r\n\r\n",
		},
		{"nonsense", "hello world\r\n\r\n", "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"},
		{"early nonsense", "\x16\x03\x01", "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"},
		{"too large", "GET / HTTP/1.1\r\nHost: a\r\nX: " + strings.Repeat("x", 40<<10), "HTTP/1.1 431 Request Header Fields Too Large\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"},
		{"smuggling", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"},
		{"an unknown coding", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\n\r\n", "HTTP/1.1 501 Not Implemented\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"},
		{"a bad chunk", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nokX", "HTTP/1.1 200 OK\r\nX-Line: POST a /\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n"},
		{"Expect", "POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n", "HTTP/1.1 100 Continue\r\n\r\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			near, _, _ := serve(t, func(x *Exchange) {
				if strings.Contains(tt.name, "Expect") {
					_, _ = x.Body().Next()
				}
				echo(x)
			})
			_, _ = io.WriteString(near, tt.in)
			got := make([]byte, len(tt.want))
			n, err := io.ReadFull(near, got)
			if string(got[:n]) != tt.want {
				t.Errorf("got  %q, %v\nwant %q", got[:n], err, tt.want)
			}
		})
	}
}

// TestClientGoes: the guard is told while an answer is waited for.
func TestClientGoes(t *testing.T) {
	told := make(aborter, 1)
	near, _, done := serve(t, func(x *Exchange) {
		x.Body()
		x.Guard(told)
		<-x.Context().Done()
	})
	_, _ = io.WriteString(near, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	_ = near.Close()
	if err := <-told; !errors.Is(err, message.ErrGone) {
		t.Errorf("told %v", err)
	}
	<-done
}

type aborter chan error

func (a aborter) Abort(err error) { a <- err }

// TestSlowAnswerThenAnother: watching the client takes nothing from the request
// that it sends meanwhile.
func TestSlowAnswerThenAnother(t *testing.T) {
	watched := make(chan struct{}, 1)
	near, c, _ := serve(t, func(x *Exchange) {
		x.Body()
		x.Guard(make(aborter, 1))
		if x.Request().Target == "/slow" {
			<-watched
		}
		echo(x)
	})
	_, _ = io.WriteString(near, "GET /slow HTTP/1.1\r\nHost: a\r\n\r\n")
	for {
		c.mu.Lock()
		w := c.watching != nil
		c.mu.Unlock()
		if w {
			break
		}
		<-time.After(time.Millisecond)
	}
	_, _ = io.WriteString(near, "GET /next HTTP/1.1\r\nHost: a\r\n\r\n")
	watched <- struct{}{}
	want := "HTTP/1.1 200 OK\r\nX-Line: GET a /slow\r\nContent-Length: 0\r\n\r\nHTTP/1.1 200 OK\r\nX-Line: GET a /next\r\nContent-Length: 0\r\n\r\n"
	got := make([]byte, len(want))
	if _, err := io.ReadFull(near, got); err != nil || string(got) != want {
		t.Errorf("%q, %v", got, err)
	}
}

func TestShutdown(t *testing.T) {
	begun, end := make(chan struct{}), make(chan struct{})
	near, c, done := serve(t, func(x *Exchange) { close(begun); <-end; echo(x) })
	idle, c2, done2 := serve(t, echo)
	_, _ = io.WriteString(near, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	<-begun
	c2.Shutdown()
	if _, err := idle.Read(make([]byte, 1)); err == nil {
		t.Error("an idle connection is open")
	}
	<-done2
	c.Shutdown()
	close(end)
	all, err := io.ReadAll(near)
	if err != nil || !bytes.Contains(all, []byte("Connection: close")) {
		t.Errorf("%q, %v", all, err)
	}
	<-done
}

func TestTunnel(t *testing.T) {
	near, _, done := serve(t, func(x *Exchange) {
		_ = x.Respond(&message.Response{Status: 200})
		nc, err := x.Tunnel()
		if err != nil {
			t.Error(err)
			return
		}
		_, _ = io.Copy(nc, nc)
		_ = nc.Close()
	})
	_, _ = io.WriteString(near, "CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n\r\nearly")
	want := "HTTP/1.1 200 OK\r\n\r\nearly"
	got := make([]byte, len(want))
	if _, err := io.ReadFull(near, got); err != nil || string(got) != want {
		t.Errorf("%q, %v", got, err)
	}
	_ = near.Close()
	<-done
}

// TestPool has our client speak to net/http's server, over connections that are
// used again.
func TestPool(t *testing.T) {
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	opened := 0
	srv := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/hint" {
				w.WriteHeader(http.StatusEarlyHints)
			}
			w.Header().Set("Trailer", "X-T")
			body, _ := io.ReadAll(r.Body)
			_, _ = w.Write(body)
			w.Header().Set("X-T", r.Trailer.Get("X-T"))
		}),
		ConnState: func(_ net.Conn, s http.ConnState) {
			if s == http.StateNew {
				mu.Lock()
				opened++
				mu.Unlock()
			}
		},
	}
	go func() { _ = srv.Serve(l) }()
	t.Cleanup(func() { _ = srv.Close() })
	p := &Pool{Dial: func(ctx context.Context) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", l.Addr().String())
	}}
	for i, body := range []string{"", "a", strings.Repeat("b", 50000), "c"} {
		c, err := p.Get(t.Context(), Want{})
		if err != nil {
			t.Fatal(err)
		}
		c.Begin(&message.Request{Version: message.HTTP11, Method: "POST", Authority: "a", Target: "/hint", Length: message.Unknown})
		if err := c.Write([]byte(body)); err != nil {
			t.Fatal(err)
		}
		if err := c.Finish(message.Fields{{Name: "X-T", Value: "t"}}); err != nil {
			t.Fatal(err)
		}
		res, err := c.Response()
		for err == nil && res.Status == 103 {
			res, err = c.Response()
		}
		if err != nil {
			t.Fatal(err)
		}
		var got []byte
		for {
			piece, err := c.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, piece...)
		}
		if string(got) != body || c.Trailer().Get("x-t") != "t" || c.Used() != (i > 0) {
			t.Errorf("request %d: %d bytes, trailer %v, used %v", i, len(got), c.Trailer(), c.Used())
		}
		p.Put(c, clock.Now())
	}
	if mu.Lock(); opened != 1 {
		t.Errorf("%d connections", opened)
	}
	mu.Unlock()
	// The server goes: an idle connection is not used.
	_ = srv.Close()
	<-time.After(3 * probeAfter)
	if c, err := p.Get(t.Context(), Want{}); err == nil {
		t.Errorf("a connection of a server that has gone: used %v", c.Used())
	}
	p.Close()
}

func TestCallIsAborted(t *testing.T) {
	near, _ := pair(t)
	c := NewCall(near, 4096)
	c.Begin(&message.Request{Version: message.HTTP11, Method: "GET", Authority: "a", Target: "/"})
	if err := c.Finish(nil); err != nil {
		t.Fatal(err)
	}
	why := errors.New("changed my mind")
	go c.Abort(why)
	if _, err := c.Response(); !errors.Is(err, why) {
		t.Errorf("Response = %v", err)
	}
	if c.Done() {
		t.Error("it can be used again")
	}
}

// FuzzBody: whatever comes, the body ends, and a body that ends well has what
// net/http finds in it.
func FuzzBody(f *testing.F) {
	f.Add("5\r\nhello\r\n0\r\n\r\n")
	f.Add("5;a\r\nhello\r\n0\r\nT: x\r\n\r\nGET")
	f.Fuzz(func(t *testing.T, in string) {
		nc := &said{in: strings.NewReader(in)}
		c := NewCall(nc, 4096)
		c.req = &message.Request{Method: "GET"}
		c.body.reset(&c.in, chunked, message.Unknown, 4096)
		var got []byte
		var err error
		for err == nil {
			var p []byte
			p, err = c.Next()
			got = append(got, p...)
		}
		if !errors.Is(err, io.EOF) {
			return
		}
		res, err := http.ReadResponse(bufio.NewReader(strings.NewReader("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"+in)), nil)
		if err != nil {
			t.Fatal(err)
		}
		theirs, err := io.ReadAll(res.Body)
		_ = res.Body.Close()
		if err != nil && !strings.Contains(err.Error(), "chunked line") && !strings.Contains(err.Error(), "malformed") && !strings.Contains(err.Error(), "excess") || err == nil && !bytes.Equal(theirs, got) {
			t.Fatalf("%q: we read %q, they %q, %v", in, got, theirs, err)
		}
	})
}

type said struct {
	net.Conn
	in io.Reader
}

func (s *said) Read(p []byte) (int, error) { return s.in.Read(p) }

// TestReadyIsExact: what is said to be there is: whoever trusts it has not sent
// yet what was kept back.
func TestReadyIsExact(t *testing.T) {
	const whole = "5\r\nhello\r\n3;x\r\nyou\r\n0\r\nT: 1\r\n\r\n"
	for cut := range len(whole) + 1 {
		near, far := net.Pipe()
		t.Cleanup(func() { _ = near.Close(); _ = far.Close() })
		c := NewCall(&said{Conn: near, in: io.MultiReader(strings.NewReader(whole[:cut]), near)}, 4096)
		c.req = &message.Request{Method: "GET"}
		c.body.reset(&c.in, chunked, message.Unknown, 4096)
		if cut > 0 && c.in.Fill(4096) != nil {
			t.Fatal("nothing to read")
		}
		for c.body.err == nil && c.Ready() {
			_, _ = c.Next() // would wait for ever on the pipe
		}
		if over := c.body.over(); over != (cut == len(whole)) {
			t.Errorf("%q: over %v", whole[:cut], over)
		}
	}
}

// TestNoWordWithinAnAnswer: a client that waits to be told to send its body is
// not told so any more once its answer has begun.
func TestNoWordWithinAnAnswer(t *testing.T) {
	near, _, done := serve(t, func(x *Exchange) {
		body := x.Body()
		_ = x.Respond(&message.Response{Status: 403, Length: 4})
		_ = x.Write([]byte("no"))
		_ = x.Flush()
		read := make(chan struct{})
		go func() { defer close(read); _, _ = body.Next() }() // as an upload that comes late
		x.Abort(errors.New("not wanted"))
		<-read
		_ = x.Write([]byte("no"))
		_ = x.Finish(nil)
	})
	_, _ = io.WriteString(near, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\nExpect: 100-continue\r\n\r\n")
	got, err := io.ReadAll(near)
	if want := "HTTP/1.1 403 Forbidden\r\nContent-Length: 4\r\nConnection: close\r\n\r\nnono"; string(got) != want || err != nil {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
	<-done
}

// TestRefusedWithoutItsBody: who did not ask for the body says that the connection
// ends, for the client may or may not send it.
func TestRefusedWithoutItsBody(t *testing.T) {
	near, _, done := serve(t, func(x *Exchange) {
		_ = x.Respond(&message.Response{Status: 403})
		_ = x.Finish(nil)
	})
	_, _ = io.WriteString(near, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\nExpect: 100-continue\r\n\r\n")
	got, err := io.ReadAll(near)
	if want := "HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"; string(got) != want || err != nil {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
	<-done
}
