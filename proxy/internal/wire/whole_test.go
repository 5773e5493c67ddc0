package wire

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/weftmesh/weft/proxy/internal/identity/identitytest"
)

// misfortunes are what may happen to a writer while it writes.
var misfortunes = map[string]func(c *tls.Conn, below net.Conn){
	"none":    func(*tls.Conn, net.Conn) {},
	"late":    func(c *tls.Conn, _ net.Conn) { _ = c.SetWriteDeadline(time.Now()) },
	"closed":  func(c *tls.Conn, _ net.Conn) { _ = c.Close() },
	"cut":     func(_ *tls.Conn, below net.Conn) { _ = below.Close() },
	"aborted": func(c *tls.Conn, _ net.Conn) { _ = c.SetDeadline(time.Unix(1, 0)); _ = c.Close() },
}

// TestStreamsAreWholeOrCut: whatever happens to a connection under TLS, both ways at
// once, what arrives is the beginning of what was sent, nothing between is lost or
// changed, and an end is only what the writer meant to be one. Meanwhile others open
// and close sockets, whose descriptors are used again.
func TestStreamsAreWholeOrCut(t *testing.T) {
	local := identitytest.New(t).Local(t, peerName)
	dice := rand.New(rand.NewPCG(1, 2))
	payload := make([]byte, 1<<20)
	for i := range payload {
		payload[i] = byte(dice.Uint32())
	}
	var others sync.WaitGroup
	over := make(chan struct{})
	others.Go(func() {
		for range 300 {
			select {
			case <-over:
				return
			default:
				reuse(t, payload[:100])
			}
		}
	})
	for name, strike := range misfortunes {
		for range 6 {
			near, far := pair(t)
			for _, c := range []net.Conn{near, far} {
				_ = c.(*net.TCPConn).SetWriteBuffer(1 + dice.IntN(20_000))
			}
			a, b := tls.Client(NewBelow(near), local.ClientTLS(peerName, peerName)), tls.Server(NewBelow(far), local.ServerTLS())
			done := make(chan error, 1)
			go func() { done <- a.Handshake() }()
			if err := errors.Join(b.Handshake(), <-done); err != nil {
				t.Fatal(err)
			}
			var both sync.WaitGroup
			for _, s := range []*stream{{from: a, below: near, to: b}, {from: b, below: far, to: a}} {
				s.t, s.name, s.payload, s.dice = t, name, payload[:1+dice.IntN(len(payload)/2)], dice.Uint64()
				both.Go(func() { s.write(strike) })
				both.Go(s.read)
			}
			both.Wait()
			_, _ = a.Close(), b.Close()
		}
	}
	close(over)
	others.Wait()
}

// reuse takes descriptors, and uses a socket once more after it is closed.
func reuse(t *testing.T, junk []byte) {
	t.Helper()
	near, far := pair(t)
	_ = near.(*net.TCPConn).SetLinger(0) // no port is kept for it
	var s Socket
	s.Reset(near)
	_, err := s.Write(junk)
	_, _ = near.Close(), far.Close()
	if n, late := s.Write(junk); err != nil || n != 0 || !errors.Is(late, net.ErrClosed) {
		t.Errorf("written: %v, and after the end %d bytes, %v", err, n, late)
	}
}

// stream is one direction.
type stream struct {
	t        *testing.T
	name     string
	from, to *tls.Conn
	below    net.Conn
	payload  []byte
	dice     uint64

	said   atomic.Int64 // bytes of writes that went well
	failed atomic.Bool  // one was too late
}

func (s *stream) write(strike func(*tls.Conn, net.Conn)) {
	dice := rand.New(rand.NewPCG(s.dice, 1))
	var struck sync.WaitGroup
	defer struck.Wait()
	when := dice.IntN(len(s.payload))
	for at := 0; at < len(s.payload); {
		n := min(len(s.payload)-at, 1+dice.IntN(1<<(1+dice.IntN(16))))
		if at <= when && when < at+n {
			struck.Go(func() { strike(s.from, s.below) })
		}
		p := append(Get(n), s.payload[at:at+n]...)
		n, err := s.from.Write(p)
		Put(p) // where tests look for who still reads it, it is overwritten
		if err != nil {
			s.failed.Store(errors.Is(err, os.ErrDeadlineExceeded))
			_ = s.from.Close()
			return
		}
		at += n
		s.said.Store(int64(at))
	}
	if s.from.CloseWrite() != nil {
		_ = s.from.Close()
	}
}

func (s *stream) read() {
	dice := rand.New(rand.NewPCG(s.dice, 2))
	var r Reader
	r.Reset(s.to)
	defer r.Release()
	for at := 0; ; {
		if dice.IntN(4) == 0 {
			_ = s.to.SetReadDeadline(time.Now().Add(time.Duration(dice.IntN(100)) * time.Microsecond))
		}
		err := r.Fill(Size)
		got := r.Bytes()
		if len(got) > len(s.payload)-at || !bytes.Equal(got, s.payload[at:at+len(got)]) {
			s.t.Errorf("%s: other bytes have come at %d of %d", s.name, at, len(s.payload))
			return
		}
		n := len(got)
		if err == nil {
			n -= dice.IntN(n)
		}
		r.Take(n)
		at += n
		switch {
		case err == nil || errors.Is(err, io.ErrShortBuffer):
		case errors.Is(err, os.ErrDeadlineExceeded):
			if s.to.SetReadDeadline(time.Time{}) != nil || s.name == "aborted" {
				_ = s.to.Close() // else who writes waits for a reader that has left
				return
			}
		case errors.Is(err, io.EOF):
			if s.failed.Load() || int64(at) < s.said.Load() {
				s.t.Errorf("%s: a good end after %d bytes of %d; a write failed: %t", s.name, at, s.said.Load(), s.failed.Load())
			}
			return
		default:
			if !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, net.ErrClosed) {
				s.t.Errorf("%s: after %d bytes of %d: %v", s.name, at, s.said.Load(), err)
			}
			return
		}
	}
}
