package door

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// An idle connection goes on on a goroutine of its own, more than once, and is
// served as ever: requests at any moment are answered, and its end is told once.
func TestIdleConnectionRests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		d := New(Config{})
		returned, over := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(returned)
			d.Serve(far, HTTP1, answer, func() { close(over) })
		}()
		in := bufio.NewReader(near)
		ask := func() {
			t.Helper()
			if _, err := io.WriteString(near, "GET / HTTP/1.1\r\nHost: a\r\n\r\n"); err != nil {
				t.Fatal(err)
			}
			if res, err := http.ReadResponse(in, nil); err != nil || res.StatusCode != http.StatusNoContent {
				t.Fatalf("got %v, %v", res, err)
			}
		}
		// At each moment of its rest, and at the very one when it is told to.
		for idle := time.Duration(0); idle < 4*restAfter; idle += restAfter / 4 {
			ask()
			time.Sleep(idle) //nolint:forbidigo // virtual time
			runtime.GC()
		}
		ask()
		select {
		case <-returned:
		default:
			t.Error("Serve has not returned while the connection was idle")
		}
		select {
		case <-over:
			t.Fatal("the connection is said to be over")
		default:
		}
		_ = near.Close()
		<-over
	})
}

// A connection that rests ends when the door is told to.
func TestShutdownOfAConnectionThatRests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		d := New(Config{})
		over := make(chan struct{})
		go d.Serve(far, HTTP1, answer, func() { close(over) })
		if _, err := io.WriteString(near, "GET / HTTP/1.1\r\nHost: a\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		if _, err := http.ReadResponse(bufio.NewReader(near), nil); err != nil {
			t.Fatal(err)
		}
		time.Sleep(4 * restAfter) //nolint:forbidigo // virtual time
		<-d.Shutdown()
		<-over
		if n, err := near.Read(make([]byte, 1)); err == nil {
			t.Errorf("read %d bytes of a connection that has ended", n)
		}
	})
}

// Many sockets that rest, and are woken all at once.
func TestSocketsRest(t *testing.T) {
	const conns = 50
	lis, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lis.Close() }()
	d := New(Config{})
	done := make(chan struct{}, conns)
	go func() {
		for {
			c, err := lis.Accept()
			if err != nil {
				return
			}
			go d.Serve(c, HTTP1, answer, func() { done <- struct{}{} })
		}
	}()
	var all []net.Conn
	for range conns {
		c, err := new(net.Dialer).DialContext(t.Context(), "tcp", lis.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, c)
	}
	ask := func(c net.Conn) error {
		if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: a\r\n\r\n"); err != nil {
			return err
		}
		res, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err == nil && res.StatusCode != http.StatusNoContent {
			err = fmt.Errorf("the answer is %s", res.Status)
		}
		return err
	}
	each := func() {
		t.Helper()
		answers := make(chan error, conns)
		for _, c := range all {
			go func() { answers <- ask(c) }()
		}
		for range all {
			if err := <-answers; err != nil {
				t.Fatal(err)
			}
		}
	}
	for range 2 {
		each()
		for resting() < conns { // it takes two rounds of the door
			<-time.After(50 * time.Millisecond)
		}
	}
	each()
	for _, c := range all {
		_ = c.Close()
	}
	for range all {
		<-done
	}
}

// resting counts goroutines that wait for a connection that rests.
func resting() int {
	buf := make([]byte, 1<<20)
	return strings.Count(string(buf[:runtime.Stack(buf, true)]), "(*Reader).Wait(")
}
