package wire

import (
	"bytes"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"testing"

	"github.com/weftmesh/weft/proxy/internal/identity/identitytest"
)

// sums counts what passes it both ways.
type sums struct {
	net.Conn
	read, wrote int
}

func (s *sums) Under() net.Conn       { return s.Conn }
func (s *sums) Passed(n int, _ error) { s.read += n }
func (s *sums) Sent(n int, _ error)   { s.wrote += n }

func (s *sums) Read(p []byte) (int, error) {
	n, err := s.Conn.Read(p)
	s.read += n
	return n, err
}

func (s *sums) Write(p []byte) (int, error) {
	n, err := s.Conn.Write(p)
	s.wrote += n
	return n, err
}

// before is what was read ahead.
type before struct {
	net.Conn
	head []byte
}

func (b *before) Under() net.Conn { return b.Conn }
func (b *before) Ahead() int      { return len(b.head) }

func (b *before) Read(p []byte) (int, error) {
	if len(b.head) > 0 {
		n := copy(p, b.head)
		b.head = b.head[n:]
		return n, nil
	}
	return b.Conn.Read(p)
}

// TestCopy passes bytes on between sockets and TLS, in any combination.
func TestCopy(t *testing.T) {
	ca := identitytest.New(t)
	const name = "a.ns.serviceaccount.identity.linkerd.cluster.local"
	local := ca.Local(t, name)
	secure := func(t *testing.T, near, far net.Conn) (net.Conn, net.Conn) {
		t.Helper()
		server := tls.Server(NewBelow(far), local.ServerTLS())
		client := tls.Client(NewBelow(near), local.ClientTLS(name, name))
		done := make(chan error, 1)
		go func() { done <- server.Handshake() }()
		if err := errors.Join(client.Handshake(), <-done); err != nil {
			t.Fatal(err)
		}
		return client, server
	}
	for _, tt := range []struct {
		name     string
		from, to bool // TLS
	}{{"plain", false, false}, {"to TLS", false, true}, {"from TLS", true, false}, {"TLS", true, true}} {
		t.Run(tt.name, func(t *testing.T) {
			near, src := pair(t)
			dst, far := pair(t)
			if tt.from {
				near, src = secure(t, near, src)
			}
			if tt.to {
				dst, far = secure(t, dst, far)
			}
			body := make([]byte, 3<<20+17)
			dice := rand.NewChaCha8([32]byte{1})
			_, _ = dice.Read(body)
			go func() {
				for rest := body; len(rest) > 0; {
					n := min(len(rest), 1+len(rest)%70_000)
					_, _ = near.Write(rest[:n])
					rest = rest[n:]
				}
				_ = near.(interface{ CloseWrite() error }).CloseWrite()
			}()
			got := make(chan [32]byte, 1)
			go func() {
				sum := sha256.New()
				_, _ = io.Copy(sum, far)
				got <- [32]byte(sum.Sum(nil))
			}()
			in, out := &sums{Conn: &before{Conn: src, head: []byte("hello")}}, &sums{Conn: dst}
			if err := Copy(out, in); err != nil {
				t.Fatal(err)
			}
			_ = dst.(interface{ CloseWrite() error }).CloseWrite()
			if want := sha256.Sum256(append([]byte("hello"), body...)); <-got != want {
				t.Error("other bytes came out than went in")
			}
			if in.read != len(body)+5 || out.wrote != len(body)+5 {
				t.Errorf("counted %d and %d bytes of %d", in.read, out.wrote, len(body)+5)
			}
		})
	}
}

// TestIdleCopyHoldsNothing: while nothing comes there is neither buffer nor pipe,
// and all pipes that were needed are few.
func TestIdleCopyHoldsNothing(t *testing.T) {
	open := func() int {
		all, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Skip(err)
		}
		return len(all)
	}
	type way struct{ near, far net.Conn }
	var ways []way
	done := make(chan error)
	const n = 100
	for range n {
		near, src := pair(t)
		dst, far := pair(t)
		go func() { done <- Copy(dst, src) }()
		ways = append(ways, way{near, far})
	}
	before := open()
	buf := make([]byte, 5)
	for range 2 {
		for _, w := range ways {
			if _, err := io.WriteString(w.near, "hello"); err != nil {
				t.Fatal(err)
			}
		}
		for _, w := range ways {
			if _, err := io.ReadFull(w.far, buf); err != nil || !bytes.Equal(buf, []byte("hello")) {
				t.Fatalf("got %q, %v", buf, err)
			}
		}
	}
	if now := open(); now > before+2*maxPipes+20 {
		t.Errorf("%d connections that are idle hold %d more files", n, now-before)
	}
	for _, w := range ways {
		_ = w.near.Close()
	}
	for range n {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}
