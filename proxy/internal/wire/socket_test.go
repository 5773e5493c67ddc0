package wire

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"
)

// socketPair is a socket, and the connection at its other end.
func socketPair(t *testing.T) (*Socket, net.Conn, net.Conn) {
	t.Helper()
	near, far := pair(t)
	s := new(Socket)
	if !s.Reset(near) || !s.Open() {
		t.Fatal("a TCP connection is no socket")
	}
	return s, near, far
}

// TestSocketMovesAll: more than the kernel takes at once goes out whole, and comes
// in as it was.
func TestSocketMovesAll(t *testing.T) {
	s, near, far := socketPair(t)
	var back Socket
	back.Reset(far)
	whole := bytes.Repeat([]byte("0123456789abcde"), 1<<20)
	sent := make(chan error, 1)
	go func() {
		n, err := s.Write(whole)
		if err == nil && n != len(whole) {
			err = io.ErrShortWrite
		}
		_ = near.Close()
		sent <- err
	}()
	sum, n, p := sha256.New(), 0, make([]byte, 100_000)
	for {
		m, err := back.Read(p)
		sum.Write(p[:m])
		n += m
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := <-sent; err != nil {
		t.Error(err)
	}
	if want := sha256.Sum256(whole); n != len(whole) || !bytes.Equal(sum.Sum(nil), want[:]) {
		t.Errorf("%d bytes have come, want %d", n, len(whole))
	}
	for _, move := range []func([]byte) (int, error){back.Read, back.Write} {
		if n, err := move(nil); n != 0 || err != nil {
			t.Errorf("no bytes: %d, %v", n, err)
		}
	}
}

// TestSocketErrors are those of the connection itself.
func TestSocketErrors(t *testing.T) {
	s, near, far := socketPair(t)
	_ = near.SetDeadline(time.Now().Add(-time.Second))
	for op, move := range map[string]func([]byte) (int, error){"read": s.Read, "write": s.Write} {
		_, err := move([]byte("x"))
		var at *net.OpError
		if !errors.Is(err, os.ErrDeadlineExceeded) || !errors.As(err, &at) || at.Op != op || !at.Timeout() {
			t.Errorf("%s after the deadline: %v", op, err)
		}
	}
	_ = near.SetDeadline(time.Time{})
	_ = far.(*net.TCPConn).SetLinger(0)
	_ = far.Close()
	var err error
	for err == nil {
		_, err = s.Write([]byte("x"))
	}
	if !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.EPIPE) {
		t.Errorf("to one that has gone: %v", err)
	}
	_ = near.Close()
	if _, err := s.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
		t.Errorf("closed: %v", err)
	}
	if new(Socket).Reset(new(Below)) || new(Socket).Open() {
		t.Error("what is no TCP connection is a socket")
	}
}

// TestBelowReadsAheadFirst: what was read before the records comes before the
// socket's bytes, and the socket's come past the connections that only look.
func TestBelowReadsAheadFirst(t *testing.T) {
	near, far := pair(t)
	b := NewBelow(&early{Conn: near, head: []byte("first ")})
	if !b.sock.Open() {
		t.Fatal("the socket was not found")
	}
	if _, err := io.WriteString(far, "second"); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len("first second"))
	if _, err := io.ReadFull(b, got); err != nil || string(got) != "first second" {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := b.Write([]byte("answer")); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(far, got[:6]); err != nil || string(got[:6]) != "answer" {
		t.Errorf("%q, %v", got[:6], err)
	}
	if NewBelow(&watched{Conn: near}).sock.Open() {
		t.Error("one that counts is passed by")
	}
}

// early has read ahead.
type early struct {
	net.Conn
	head []byte
}

func (e *early) Under() net.Conn { return e.Conn }
func (e *early) Ahead() int      { return len(e.head) }

func (e *early) Read(p []byte) (int, error) {
	if len(e.head) > 0 {
		n := copy(p, e.head)
		e.head = e.head[n:]
		return n, nil
	}
	return e.Conn.Read(p)
}
