package wire

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"testing"

	"github.com/weftmesh/weft/proxy/internal/identity/identitytest"
)

// asked is a connection that notes how much is asked of it at most.
type asked struct {
	net.Conn
	most int
}

func (a *asked) Read(p []byte) (int, error) {
	a.most = max(a.most, len(p))
	return a.Conn.Read(p)
}

// TestBelowReadsNoSecondLongRecord: but for a few, tls.Conns get no more than the
// record that has begun, so that they do not make room for two; and those few are
// others when they have gone.
func TestBelowReadsNoSecondLongRecord(t *testing.T) {
	ca := identitytest.New(t)
	const name = "a.ns.serviceaccount.identity.linkerd.cluster.local"
	local := ca.Local(t, name)
	before := roomy.Load()
	for round := range 2 {
		var open []net.Conn
		large := 0
		for range maxRoomy + 10 {
			near, far := pair(t)
			below := &asked{Conn: far}
			server, client := tls.Server(NewBelow(below), local.ServerTLS()), tls.Client(near, local.ClientTLS(name, name))
			open = append(open, server, near)
			done := make(chan error, 1)
			go func() { done <- server.Handshake() }()
			if err := errors.Join(client.Handshake(), <-done); err != nil {
				t.Fatal(err)
			}
			const size = 1 << 20
			go func() { _, err := client.Write(make([]byte, size)); done <- err }()
			if n, err := io.ReadFull(server, make([]byte, size)); err != nil {
				t.Fatalf("%d bytes, %v", n, err)
			}
			if err := <-done; err != nil {
				t.Fatal(err)
			}
			if below.most > 17<<10 {
				large++
			}
		}
		if want := maxRoomy - int(before); large > want || large < want-1 {
			t.Errorf("round %d: %d of %d have read more than a record at once, want %d", round, large, maxRoomy+10, want)
		}
		for _, c := range open {
			_ = c.Close()
			_ = c.Close()
		}
		if n := roomy.Load(); n != before {
			t.Errorf("round %d: %d are counted when all are closed, before it were %d", round, n, before)
		}
	}
}
