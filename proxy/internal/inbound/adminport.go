package inbound

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"time"

	"github.com/weftmesh/weft/proxy/internal/allow"
	"github.com/weftmesh/weft/proxy/internal/bridge"
	"github.com/weftmesh/weft/proxy/internal/detect"
	"github.com/weftmesh/weft/proxy/internal/door"
	"github.com/weftmesh/weft/proxy/internal/message"
	"github.com/weftmesh/weft/proxy/internal/origdst"
	"github.com/weftmesh/weft/proxy/internal/tell"
	"github.com/weftmesh/weft/services/kit/pause"
)

// adminDetect is how long a client of the admin port may take to begin.
const adminDetect = time.Second

// ServeAdmin serves h on l under the policy of its port, with or without mesh
// TLS, from before there is a certificate until ctx ends: the drain does not
// stop it. The probes are answered to everyone, so that a proxy whose policy
// service is away does not get its pod restarted.
func (in *Inbound) ServeAdmin(ctx context.Context, l net.Listener, h http.Handler) error {
	open := func(x *exchange) {
		answered := &record{Client: x.Client}
		x.Client = answered
		bridge.Serve(h, x, netip.AddrPortFrom(x.session.client.Addr, 0).String())
		x.end.Status = answered.status
	}
	protected := in.limit(in.mesh(in.allow(in.filter(in.tell(open)))))
	stack := func(x *exchange) {
		if path := x.req.Path(); path == "/live" || path == "/ready" {
			open(x)
			return
		}
		protected(x)
	}
	clients := in.newDoor()
	closed := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(closed)
		_ = l.Close()
		// The answer to POST /shutdown may be on its way.
		t := time.NewTimer(time.Second)
		defer t.Stop()
		select {
		case <-clients.Shutdown():
		case <-t.C:
		}
		clients.Close()
	})
	in.acceptAdmin(ctx, l, clients, stack)
	if !stop() {
		<-closed
	}
	return nil
}

func (in *Inbound) acceptAdmin(ctx context.Context, l net.Listener, clients *door.Door, stack handler) {
	for {
		c, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			in.log.Warn("admin connection not accepted", "error", err)
			pause.For(ctx, 50*time.Millisecond)
			continue
		}
		go func() {
			defer in.survive(c, func() {})
			if err := in.admin(ctx, c, clients, stack); err != nil {
				_ = c.Close()
				in.log.Debug("admin connection refused", "client", c.RemoteAddr().String(), "error", err)
			}
		}()
	}
}

func (in *Inbound) admin(ctx context.Context, raw net.Conn, clients *door.Door, stack handler) error {
	target := origdst.AddrPort(raw.LocalAddr())
	hello, c, err := detect.TLS(ctx, raw, adminDetect)
	if err != nil {
		return err
	}
	client := allow.Client{Addr: origdst.AddrPort(raw.RemoteAddr()).Addr()}
	labels := tell.NoTLS(tell.NoTLSFromPeer)
	switch hello.SNI {
	case "":
	case in.deps.Identity.ServerName():
		if c, labels, err = in.meshed(ctx, c, &client); err != nil {
			return err
		}
	default:
		return errForeignName
	}
	p, free, err := in.policies.get(in.cfg.AdminListen.Port())
	if err != nil {
		return err
	}
	s := newSession(client, labels, target, p)
	s.from = origdst.AddrPort(raw.RemoteAddr())
	clients.Serve(in.source(s).Wrap(c), door.Either, func(c message.Client) { in.carry(c, s, stack) }, free)
	return nil
}

const errForeignName = refusal("TLS for another name")
