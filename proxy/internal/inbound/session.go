package inbound

import (
	"net/netip"
	"sync"

	"github.com/weftmesh/weft/proxy/internal/allow"
	"github.com/weftmesh/weft/proxy/internal/tell"
)

// A session is what is known of one client connection once its TLS, its target
// and its policy are.
type session struct {
	client allow.Client
	tls    tell.Labels
	target netip.AddrPort // of the application
	port   *port
	app    *workload // the connections to the target

	labels tell.Labels // direction, target and TLS
	counts sync.Map    // bindKey -> *counts, bounded by the policy's rules
}

func newSession(client allow.Client, tls tell.Labels, target netip.AddrPort, p *port) *session {
	labels := tell.Labels{{Name: "direction", Value: "inbound"}}
	return &session{
		client: client, tls: tls, target: target, port: p,
		labels: labels.And(tell.Target(target)).And(tls),
	}
}
