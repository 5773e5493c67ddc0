package h1

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"

	"github.com/weftmesh/weft/proxy/internal/message"
)

// alone has the test run as on one processor, where answers are sent with others'.
func alone(t *testing.T) {
	t.Helper()
	before := runtime.GOMAXPROCS(1)
	t.Cleanup(func() { runtime.GOMAXPROCS(before) })
}

// TestAnswersStayInOrder: whether requests come one by one, in pairs, or many at once,
// with bodies or without, each gets its answer, and in turn.
func TestAnswersStayInOrder(t *testing.T) {
	alone(t)
	near, _, done := serve(t, echo)
	in := bufio.NewReader(near)
	n := 0
	for _, together := range []int{1, 1, 2, 1, 7, 1, 50, 1} {
		var all strings.Builder
		for i := range together {
			body := ""
			if i%3 == 1 {
				body = "Content-Length: 2\r\n\r\nok"
			} else {
				body = "\r\n"
			}
			_, _ = fmt.Fprintf(&all, "POST /%d HTTP/1.1\r\nHost: a\r\n%s", n+i, body)
		}
		if _, err := io.WriteString(near, all.String()); err != nil {
			t.Fatal(err)
		}
		for range together {
			res, err := http.ReadResponse(in, nil)
			if err != nil {
				t.Fatalf("request %d: %v", n, err)
			}
			_, _ = io.Copy(io.Discard, res.Body)
			if got, want := res.Header.Get("X-Line"), fmt.Sprintf("POST a /%d", n); got != want {
				t.Fatalf("%q, want %q", got, want)
			}
			n++
		}
	}
	_ = near.Close()
	<-done
}

// TestLastAnswerIsOut: a connection that is told to leave before its answer has been
// sent sends it, and ends then.
func TestLastAnswerIsOut(t *testing.T) {
	alone(t)
	for i := range 20 {
		var c *Conn
		asked := make(chan struct{})
		near, conn, done := serve(t, func(x *Exchange) {
			if x.Request().Target == "/first" { // to find out what it is
				echo(x)
				return
			}
			<-asked
			echo(x)
			if !c.in.Posts() {
				t.Error("no answer is kept back")
			}
			go c.Shutdown() // while it is kept, or before, or after
			for range i % 5 {
				runtime.Gosched()
			}
		})
		c = conn
		in := bufio.NewReader(near)
		for _, target := range []string{"/first", "/last"} {
			_, _ = fmt.Fprintf(near, "GET %s HTTP/1.1\r\nHost: a\r\n\r\n", target)
			if target == "/last" {
				close(asked)
			}
			res, err := http.ReadResponse(in, nil)
			if err != nil || res.Header.Get("X-Line") != "GET a "+target {
				t.Fatalf("run %d: %v, %v", i, res, err)
			}
			_, _ = io.Copy(io.Discard, res.Body)
		}
		if _, err := in.ReadByte(); err == nil {
			t.Fatal("there is more")
		}
		<-done
	}
}

// TestQuestionToNobody: a question that could not be sent was not, and a connection
// that was used before is stale.
func TestQuestionToNobody(t *testing.T) {
	alone(t)
	near, far := pair(t)
	c := NewCall(near, 4096)
	ask := func() (*message.Response, error) {
		c.Begin(&message.Request{Version: message.HTTP11, Method: "GET", Authority: "a", Target: "/"})
		if err := c.Finish(nil); err != nil {
			return nil, err
		}
		return c.Response()
	}
	go func() {
		in := bufio.NewReader(far)
		if _, err := http.ReadRequest(in); err == nil {
			_, _ = io.WriteString(far, "HTTP/1.1 204 No Content\r\n\r\n")
		}
	}()
	if _, err := ask(); err != nil || !c.Done() {
		t.Fatal(err)
	}
	_ = far.(interface{ SetLinger(int) error }).SetLinger(0)
	_ = far.Close()
	if _, err := ask(); !errors.Is(err, ErrStale) || c.Sent() {
		t.Errorf("%v, sent: %v", err, c.Sent())
	}
	c.Close()
}
