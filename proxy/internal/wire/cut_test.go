package wire

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/weftmesh/weft/proxy/internal/identity/identitytest"
)

const peerName = "a.ns.serviceaccount.identity.linkerd.cluster.local"

// strait is a connection that lets so many bytes through, says so, and then waits
// until it is opened.
type strait struct {
	net.Conn
	left   int // without a bound while negative
	full   chan struct{}
	opened chan struct{}
}

func (s *strait) Read(p []byte) (int, error) {
	if s.left == 0 {
		close(s.full)
		<-s.opened
		s.left = -1
	}
	if s.left > 0 {
		p = p[:min(len(p), s.left)]
	}
	n, err := s.Conn.Read(p)
	if s.left > 0 {
		s.left -= n
	}
	return n, err
}

// TestNothingFollowsAFailedWrite: a connection that is closed after a write that came
// too late ends for its peer where that write ended, which is no end. The goodbye of
// TLS behind it was a bad record MAC.
func TestNothingFollowsAFailedWrite(t *testing.T) {
	local := identitytest.New(t).Local(t, peerName)
	const size = 1000
	const record = recordHead + size + 17 // bytes: with what TLS 1.3 adds (RFC 8446 §5.2)
	for _, taken := range []int{0, 1, recordHead, record - 20, record - 1} {
		near, far := net.Pipe()
		narrow := &strait{Conn: far, left: -1, full: make(chan struct{}), opened: make(chan struct{})}
		writer, reader := tls.Client(NewBelow(near), local.ClientTLS(peerName, peerName)), tls.Server(NewBelow(narrow), local.ServerTLS())
		done := make(chan error, 1)
		go func() { done <- writer.Handshake() }()
		if err := errors.Join(reader.Handshake(), <-done); err != nil {
			t.Fatal(err)
		}
		narrow.left = taken
		go func() { _, err := reader.Read(make([]byte, size)); done <- err }()
		go func() {
			<-narrow.full
			_ = writer.SetWriteDeadline(time.Unix(1, 0))
		}()
		if n, err := writer.Write(make([]byte, size)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("%d bytes were written, %v", n, err)
		}
		close(narrow.opened)
		_ = writer.Close()
		if err := <-done; !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%d of the record's %d bytes, then %v", taken, record, err)
		}
		_ = reader.Close()
	}
}
