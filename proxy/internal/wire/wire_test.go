package wire

import (
	"bytes"
	"errors"
	"io"
	"net"
	"testing"
	"time"
)

func pair(t *testing.T) (near, far net.Conn) {
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
	return near, far
}

// watched counts what is read past it.
type watched struct {
	net.Conn
	n int
}

func (w *watched) Under() net.Conn       { return w.Conn }
func (w *watched) Passed(n int, _ error) { w.n += n }

// TestIdleReaderOwnsNothing: a socket that says nothing has no buffer, before and
// after it has said something.
func TestIdleReaderOwnsNothing(t *testing.T) {
	near, far := pair(t)
	w := &watched{Conn: far}
	var r Reader
	r.Reset(w)
	for _, say := range []string{"first", "second"} {
		if _, err := io.WriteString(near, say); err != nil {
			t.Fatal(err)
		}
		if err := r.Fill(Size); err != nil || string(r.Bytes()) != say {
			t.Fatalf("%q, %v", r.Bytes(), err)
		}
		r.Take(len(say))
		_ = far.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
		if err := r.Fill(Size); err == nil {
			t.Fatal("bytes from nowhere")
		}
		_ = far.SetReadDeadline(time.Time{})
		if r.buf != nil {
			t.Errorf("after %q it holds %d bytes", say, len(r.buf))
		}
	}
	if w.n != len("second") { // the first read is the connection's own
		t.Errorf("%d bytes were counted", w.n)
	}
	_ = near.Close()
	if err := r.Fill(Size); !errors.Is(err, io.EOF) {
		t.Errorf("the end is %v", err)
	}
}

// TestReaderGrows up to what it may.
func TestReaderGrows(t *testing.T) {
	near, far := pair(t)
	in := bytes.Repeat([]byte("x"), 3*Size)
	go func() { _, _ = near.Write(in) }()
	var r Reader
	r.Reset(far)
	for len(r.Bytes()) < 2*Size {
		if err := r.Fill(2 * Size); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.Fill(2 * Size); !errors.Is(err, io.ErrShortBuffer) {
		t.Errorf("Fill = %v", err)
	}
	r.Release()
	if len(r.Bytes()) != 0 {
		t.Error("released, and not empty")
	}
}

func TestPool(t *testing.T) {
	for _, n := range []int{0, 1 << 10, 1<<10 + 1, 16 << 10, 32 << 10, 64 << 10, 64<<10 + 1} {
		b := Get(n)
		if len(b) != 0 || cap(b) < n {
			t.Errorf("Get(%d): %d of %d", n, len(b), cap(b))
		}
		Put(b)
	}
	var b []byte
	for range 100 {
		b = Append(b, bytes.Repeat([]byte("y"), 1000))
	}
	if len(b) != 100_000 || bytes.Count(b, []byte("y")) != 100_000 {
		t.Errorf("%d bytes", len(b))
	}
}

func TestQuiet(t *testing.T) {
	near, far := pair(t)
	var r Reader
	r.Reset(&watched{Conn: far})
	if !r.Quiet() || !quiet(far) {
		t.Error("an idle connection is not quiet")
	}
	_ = near.Close()
	for r.Quiet() || quiet(far) {
		<-time.After(time.Millisecond)
	}
}
