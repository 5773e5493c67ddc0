package h1

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"testing"
)

// TestNothingIsServedAfterTheEnd: a request that comes as an idle connection is closed
// is not passed on, for its client cannot get the answer. A drain answers what it has
// taken; who closes by force may come a moment too late, but not each time.
func TestNothingIsServedAfterTheEnd(t *testing.T) {
	const post = " HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nok"
	const times = 20
	for _, tt := range []struct {
		name string
		end  func(*Conn)
		most int
	}{{"drain", (*Conn).Shutdown, 0}, {"close", (*Conn).Close, times / 2}} {
		t.Run(tt.name, func(t *testing.T) {
			alone(t)
			lost := 0
			for range times {
				served := 0
				begun := make(chan func())
				near, c, done := serve(t, func(x *Exchange) {
					next, first := <-begun
					echo(x)
					if served++; first {
						next()
					}
				})
				_, _ = io.WriteString(near, "POST /first"+post)
				begun <- func() {
					_, _ = io.WriteString(near, "POST /second"+post)
					go tt.end(c) // has its turn when the next request is waited for
				}
				close(begun)
				in := bufio.NewReader(near)
				answers := 0
				for {
					res, err := http.ReadResponse(in, nil)
					if err != nil {
						break
					}
					_, _ = io.Copy(io.Discard, res.Body)
					answers++
				}
				<-done
				if answers == 0 {
					t.Error("the first has no answer")
				}
				lost += served - answers
			}
			if lost > tt.most {
				t.Errorf("%d of %d requests were served and not answered, want %d at most", lost, times, tt.most)
			}
		})
	}
}

// TestNoRequestOnceClosed: what was read while the connection was closed is no request,
// on however many processors.
func TestNoRequestOnceClosed(t *testing.T) {
	for name, end := range map[string]func(*Conn){"drain": (*Conn).Shutdown, "close": (*Conn).Close} {
		_, far := pair(t)
		c := NewConn(far, Config{})
		end(c)
		if err := c.woken(nil, false); !errors.Is(err, net.ErrClosed) || c.busy {
			t.Errorf("%s: %v, busy %v", name, err, c.busy)
		}
		c.end()
	}
}

// TestNothingInTheBufferIsServedAfterTheEnd: neither is what was read before.
func TestNothingInTheBufferIsServedAfterTheEnd(t *testing.T) {
	const post = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nok"
	served := 0
	conns := make(chan *Conn, 1)
	near, conn, done := serve(t, func(x *Exchange) {
		echo(x)
		if served++; served == 1 {
			(<-conns).Close()
		}
	})
	conns <- conn
	_, _ = io.WriteString(near, post+post+post)
	<-done
	if served != 1 {
		t.Errorf("%d requests were served, want the one before the end", served)
	}
}
