package h2

import (
	"bytes"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weftmesh/weft/proxy/internal/message"
)

// BenchmarkExchange is what a request and its answer cost both ends of a
// connection, without the system's part: the connection is in memory.
func BenchmarkExchange(b *testing.B) {
	for _, bb := range []struct {
		name   string
		atOnce int
		body   bool
	}{{"one at a time", 1, false}, {"64 at once", 64, false}, {"64 at once with a body", 64, true}} {
		b.Run(bb.name, func(b *testing.B) {
			near, far := memory()
			hands := make(chan *Stream, 200)
			answer := bytes.Repeat([]byte("a"), 1024)
			for range 64 {
				go func() {
					for s := range hands {
						reply(s, answer)
					}
				}()
			}
			server := Server(far, Config{Handle: func(s *Stream) { hands <- s }})
			client := Client(near, Config{})
			var ends sync.WaitGroup
			ends.Go(func() { _ = server.Run() })
			ends.Go(func() { _ = client.Run() })
			var workers sync.WaitGroup
			turns := make(chan struct{}, bb.atOnce)
			b.ReportAllocs()
			for range bb.atOnce {
				workers.Go(func() {
					for range turns {
						if err := question(b, client, bb.body); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			before := processor(b)
			for b.Loop() {
				turns <- struct{}{}
			}
			close(turns)
			workers.Wait()
			// Of both ends; other work on the machine counts in ns/op.
			b.ReportMetric(float64(processor(b)-before)/float64(b.N), "cpu-ns/op")
			client.Close()
			server.Close()
			ends.Wait()
			close(hands)
		})
	}
}

// processor is the time that this process has computed.
func processor(b *testing.B) time.Duration {
	b.Helper()
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func question(b *testing.B, c *Conn, body bool) error {
	b.Helper()
	r := &message.Request{Method: "GET", Authority: "books.shop.svc.cluster.local:8080", Target: "/books/list", Fields: message.Fields{
		{Name: "Host", Value: "books.shop.svc.cluster.local:8080"},
		{Name: "User-Agent", Value: "bench"},
		{Name: "Accept", Value: "*/*"},
		{Name: "L5d-Orig-Proto", Value: "HTTP/1.1"},
		{Name: "X-Request-Id", Value: "8c1a0f4e-7b56-4e3c-9a4b-16d1f8b2c0d7"},
	}}
	s, err := c.Open(b.Context(), r, !body)
	if err != nil {
		return err
	}
	defer s.Close()
	if body {
		if err := s.Write([]byte("a hundred bytes, more or less: it is as long as a question of gRPC may be, which is what this is for")); err != nil {
			return err
		}
		if err := s.Finish(nil); err != nil {
			return err
		}
	}
	res, err := s.Response()
	if err != nil {
		return err
	}
	if res.Status != 200 {
		return errors.New("no 200")
	}
	for n := 0; ; {
		p, err := s.Next()
		if errors.Is(err, io.EOF) && n == 1024 {
			return nil
		}
		if err != nil {
			return err
		}
		n += len(p)
	}
}

func reply(s *Stream, body []byte) {
	defer s.Done()
	if in := s.Body(); in != nil {
		for {
			if _, err := in.Next(); err != nil {
				break
			}
		}
	}
	res := &message.Response{Status: 200, Length: int64(len(body)), Fields: message.Fields{
		{Name: "Content-Type", Value: "text/plain"},
		{Name: "Content-Length", Value: "1024"},
		{Name: "Date", Value: "Mon, 30 Nov 2026 19:00:00 GMT"},
		{Name: "L5d-Orig-Proto", Value: "HTTP/1.1"},
	}}
	if s.Respond(res) == nil && s.Write(body) == nil {
		_ = s.Finish(nil)
	}
}

// memory is a connection whose bytes stay in the process.
func memory() (near, far net.Conn) {
	a, b := newTube(), newTube()
	return &end{in: a, out: b}, &end{in: b, out: a}
}

type end struct {
	net.Conn
	in, out *tube
}

func (e *end) Read(p []byte) (int, error)       { return e.in.read(p) }
func (e *end) Write(p []byte) (int, error)      { return e.out.write(p) }
func (e *end) Close() error                     { e.in.close(); e.out.close(); return nil }
func (*end) SetDeadline(time.Time) error        { return nil }
func (*end) SetReadDeadline(time.Time) error    { return nil }
func (*end) SetWriteDeadline(_ time.Time) error { return nil }

// A tube is one direction.
type tube struct {
	mu   sync.Mutex
	cond sync.Cond
	b    []byte
	over bool
}

func newTube() *tube {
	t := new(tube)
	t.cond.L = &t.mu
	return t
}

func (t *tube) read(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for len(t.b) == 0 {
		if t.over {
			return 0, io.EOF
		}
		t.cond.Wait()
	}
	n := copy(p, t.b)
	t.b = append(t.b[:0], t.b[n:]...)
	return n, nil
}

func (t *tube) write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.over {
		return 0, net.ErrClosed
	}
	t.b = append(t.b, p...)
	t.cond.Signal()
	return len(p), nil
}

func (t *tube) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.over = true
	t.cond.Broadcast()
}
