// Package detect looks at the first bytes of a connection to learn what it
// carries, and gives back a connection that yields those bytes again. It never
// answers and never waits for more than it needs (spec/proxy.md §5.5, §10.2).
package detect

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"time"
)

// Kind is what a connection carries.
type Kind uint8

// The kinds. Silent means that nothing came in time: the caller knows what its
// policy says about that.
const (
	Opaque Kind = iota
	HTTP1
	HTTP2
	Silent
)

// String is the value of the result label of …_detect_http_results_total.
func (k Kind) String() string {
	switch k {
	case HTTP1:
		return "http/1"
	case HTTP2:
		return "http/2"
	case Silent:
		return "read_timeout"
	}
	return "not_http"
}

var (
	// ErrClosed means that the peer closed before it had sent anything.
	ErrClosed = errors.New("socket closed before protocol detection")
	// ErrTimeout means that a TLS hello did not arrive, or not completely, in time.
	ErrTimeout = errors.New("TLS detection timed out")
)

// httpPeek bounds HTTP detection, which is one read and nothing more.
const httpPeek = 1024

// HTTP tells HTTP/1 and HTTP/2 from anything else by what the first read gives.
// A timeout is not an error; the connection can still be used.
func HTTP(ctx context.Context, conn net.Conn, timeout time.Duration) (Kind, net.Conn, error) {
	buf := make([]byte, httpPeek)
	n, err := readWithin(ctx, conn, buf, time.Now().Add(timeout))
	switch {
	case n > 0:
		return classify(buf[:n]), Replay(conn, buf[:n]), nil
	case errors.Is(err, os.ErrDeadlineExceeded):
		return Silent, conn, nil
	case err == nil, errors.Is(err, io.EOF):
		return Opaque, conn, ErrClosed
	}
	return Opaque, conn, err
}

// readWithin is one read that ends at the deadline or with ctx. The connection
// has no deadline afterwards.
func readWithin(ctx context.Context, conn net.Conn, buf []byte, deadline time.Time) (int, error) {
	if err := conn.SetReadDeadline(deadline); err != nil {
		return 0, err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetReadDeadline(time.Unix(1, 0)) })
	n, err := conn.Read(buf)
	if !stop() {
		return n, context.Cause(ctx)
	}
	if resetErr := conn.SetReadDeadline(time.Time{}); err == nil {
		err = resetErr
	}
	return n, err
}

// A Conn yields head before it reads on.
type Conn struct {
	net.Conn
	head []byte
}

// Replay returns conn with head in front. It keeps head.
func Replay(conn net.Conn, head []byte) net.Conn {
	if len(head) == 0 {
		return conn
	}
	if c, ok := conn.(*Conn); ok {
		return &Conn{Conn: c.Conn, head: append(slices.Clip(head), c.head...)}
	}
	return &Conn{Conn: conn, head: head}
}

func (c *Conn) Read(b []byte) (int, error) {
	if len(c.head) > 0 {
		n := copy(b, c.head)
		if c.head = c.head[n:]; len(c.head) == 0 {
			c.head = nil // free it
		}
		return n, nil
	}
	return c.Conn.Read(b)
}

// WriteTo lets io.Copy hand the rest to the kernel once head is gone.
func (c *Conn) WriteTo(w io.Writer) (int64, error) {
	head := c.head
	c.head = nil
	n, err := w.Write(head)
	if err != nil {
		return int64(n), err
	}
	more, err := io.Copy(w, c.Conn)
	return int64(n) + more, err
}

// CloseWrite ends our direction only, where the connection below can.
func (c *Conn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return c.Close()
}

// Ahead is how many bytes come before those of the connection below.
func (c *Conn) Ahead() int { return len(c.head) }

// Under is the connection below, for asking about its socket.
func (c *Conn) Under() net.Conn { return c.Conn }
