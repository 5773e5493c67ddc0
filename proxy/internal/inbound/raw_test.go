package inbound

import (
	"net"
	"testing"
	"time"

	pb "github.com/linkerd/linkerd2-proxy-api/go/inbound"

	"github.com/weftmesh/weft/proxy/internal/header"
	"github.com/weftmesh/weft/proxy/internal/rawtest"
)

// TestRawRequests sends bytes that no honest client would to the application's
// port, with and without mesh TLS around them.
func TestRawRequests(t *testing.T) {
	http1 := detectServer(anybody())
	http1.Protocol = &pb.ProxyProtocol{Kind: &pb.ProxyProtocol_Http1_{Http1: &pb.ProxyProtocol_Http1{}}}
	cases := rawtest.Load(t)
	for _, tt := range []struct {
		name   string
		policy *pb.Server
		dial   func(w *world, port uint16) (net.Conn, error)
	}{
		{"http1 port", http1, plain},
		{"detected", detectServer(anybody()), plain},
		{"mesh peer", detectServer(anybody()), func(w *world, port uint16) (net.Conn, error) {
			return w.direct(w.ca.Local(w.t, alice), header.Header{Port: port, Session: header.HTTP1}), nil
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := rawtest.Serve(t)
			to := b.Addr.AddrPort()
			w := newWorld(t)
			if tt.name != "mesh peer" {
				w.redirectTo(to)
			}
			w.run().allow(to.Port(), tt.policy)
			rawtest.Run(t, b, cases, func() (net.Conn, error) { return tt.dial(w, to.Port()) })
		})
	}
}

// TestMutatedRequests sends random bytes that are nearly requests.
func TestMutatedRequests(t *testing.T) {
	b := rawtest.Serve(t)
	s := detectServer(anybody())
	s.Protocol = &pb.ProxyProtocol{Kind: &pb.ProxyProtocol_Http1_{Http1: &pb.ProxyProtocol_Http1{}}}
	w := newWorld(t).redirectTo(b.Addr.AddrPort()).run()
	w.allow(b.Addr.AddrPort().Port(), s)
	rawtest.Mutate(t, b, 1000, func() (net.Conn, error) { return plain(w, 0) })
}

func plain(w *world, _ uint16) (net.Conn, error) {
	return (&net.Dialer{Timeout: time.Second}).DialContext(w.t.Context(), "tcp", w.in.Addr().String())
}
