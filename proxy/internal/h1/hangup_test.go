package h1

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/weftmesh/weft/proxy/internal/message"
)

// TestUnreadTakesNoAnswerAway: what a client has sent for nothing does not take the
// answer away from it that is on its way when the connection ends.
func TestUnreadTakesNoAnswerAway(t *testing.T) {
	const answer = 48 << 10
	post := func(size int) string {
		return fmt.Sprintf("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%s", size, strings.Repeat("x", size))
	}
	const get = "GET / HTTP/1.1\r\nHost: a\r\n\r\n"
	const expecting = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 65536\r\nExpect: 100-continue\r\n\r\n"
	for _, tt := range []struct {
		name   string
		first  string
		then   string // while the answer is made
		fields message.Fields
		leaves bool
	}{
		{name: "a body longer than is waited for", first: post(leftover + 64<<10)},
		{name: "a body that nobody has asked for", first: expecting, then: strings.Repeat("x", 65536)},
		{name: "a request that the server has no time for", first: get, then: post(64 << 10), leaves: true},
		{name: "a request behind the last", first: get, then: post(64 << 10), fields: message.Fields{{Name: "Connection", Value: "close"}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			near, far := pair(t)
			_ = near.(*net.TCPConn).SetReadBuffer(4 << 10) // what is not read waits on the server's side
			_ = far.(*net.TCPConn).SetWriteBuffer(1 << 20)
			begun, end := make(chan struct{}), make(chan struct{})
			c := NewConn(far, Config{Handle: func(x *Exchange) {
				_ = x.Respond(&message.Response{Status: 200, Fields: tt.fields, Length: answer})
				close(begun)
				<-end
				_ = x.Write(make([]byte, answer))
				_ = x.Finish(nil)
			}})
			done, written := make(chan struct{}), make(chan error, 1)
			go func() { defer close(done); c.Serve() }()
			go func() { _, err := io.WriteString(near, tt.first); written <- err }()
			<-begun
			if _, err := io.WriteString(near, tt.then); err != nil {
				t.Fatal(err)
			}
			if tt.leaves {
				c.Shutdown()
			}
			close(end)
			if err := <-written; err != nil {
				t.Errorf("it cannot be sent: %v", err)
			}
			all, err := io.ReadAll(near)
			if _, body, _ := strings.Cut(string(all), "\r\n\r\n"); err != nil || len(body) != answer {
				t.Errorf("%d bytes of %d came, %v", len(body), answer, err)
			}
			_ = near.Close()
			<-done
		})
	}
}

// TestEndlessBodyTakesNoAnswerAway: a client that sends on and on, and faster than any
// bound of what is read for nothing, has its answer all the same.
func TestEndlessBodyTakesNoAnswerAway(t *testing.T) {
	const answer = 48 << 10
	near, far := pair(t)
	_ = near.(*net.TCPConn).SetReadBuffer(4 << 10)
	_ = far.(*net.TCPConn).SetWriteBuffer(1 << 20)
	c := NewConn(far, Config{Handle: func(x *Exchange) {
		_ = x.Respond(&message.Response{Status: 413, Length: answer})
		_ = x.Write(make([]byte, answer))
		_ = x.Finish(nil)
	}})
	done, sent := make(chan struct{}), make(chan struct{})
	go func() { defer close(done); c.Serve() }()
	go func() {
		defer close(sent)
		_, _ = io.WriteString(near, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000000\r\n\r\n")
		for p := make([]byte, 64<<10); ; {
			if _, err := near.Write(p); err != nil {
				return // the server has hung up
			}
		}
	}()
	in := bufio.NewReader(near)
	res, err := http.ReadResponse(in, nil)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := io.Copy(io.Discard, res.Body); n != answer || err != nil || res.StatusCode != 413 {
		t.Errorf("%d and %d bytes of %d, %v", res.StatusCode, n, answer, err)
	}
	<-sent
	<-done
}

// TestLateRequestTakesNoAnswerAway: nor does a request that comes when the server, which
// is to end, has said the last of an answer that is still on its way.
func TestLateRequestTakesNoAnswerAway(t *testing.T) {
	const answer = 300 << 10
	near, far := pair(t)
	_ = near.(*net.TCPConn).SetReadBuffer(32 << 10)
	_ = far.(*net.TCPConn).SetWriteBuffer(1 << 20)
	begun, told := make(chan struct{}), make(chan struct{})
	c := NewConn(far, Config{Handle: func(x *Exchange) {
		_ = x.Respond(&message.Response{Status: 200, Length: answer})
		close(begun)
		<-told
		_ = x.Write(make([]byte, answer))
		_ = x.Finish(nil)
	}})
	done := make(chan struct{})
	go func() { defer close(done); c.Serve() }()
	const get = "GET / HTTP/1.1\r\nHost: a\r\n\r\n"
	_, _ = io.WriteString(near, get)
	<-begun
	c.Shutdown()
	close(told)
	select {
	case <-done: // too soon
	case <-time.After(parting / 4):
	}
	_, _ = io.WriteString(near, get)
	res, err := http.ReadResponse(bufio.NewReader(near), nil)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := io.Copy(io.Discard, res.Body); n != answer || err != nil {
		t.Errorf("%d bytes of %d, %v", n, answer, err)
	}
	<-done
}
