package inbound

import (
	"net/netip"
	"sync/atomic"

	"github.com/weftmesh/weft/proxy/internal/allow"
	"github.com/weftmesh/weft/proxy/internal/tell"
)

// A session is what is known of one client connection once its TLS, its target
// and its policy are.
type session struct {
	client  allow.Client
	from    netip.AddrPort // the client's
	tls     tell.Labels
	target  netip.AddrPort // of the application
	port    *port
	app     *workload // the connections to the target
	gateway string    // the name (host:port) that a peer asks this gateway for; else ""

	place  tell.Labels // target and TLS
	labels tell.Labels // those and the direction
	counts tell.Bound[bindKey, *counts]
	last   atomic.Pointer[counts] // of the last request: mostly that of the next

	authorities atomic.Int64 // that are counted apart
}

func newSession(client allow.Client, tls tell.Labels, target netip.AddrPort, p *port) *session {
	place := tell.Target(target).And(tls)
	return &session{
		client: client, tls: tls, target: target, port: p,
		place: place, labels: place.With("direction", "inbound"),
	}
}
