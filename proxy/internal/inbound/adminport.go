package inbound

import (
	"context"
	"errors"
	"net"
	"net/http"
	"time"

	"github.com/weftmesh/weft/proxy/internal/allow"
	"github.com/weftmesh/weft/proxy/internal/detect"
	"github.com/weftmesh/weft/proxy/internal/identity"
	"github.com/weftmesh/weft/proxy/internal/tell"
)

// adminDetect is how long a client of the admin port may take to begin.
const adminDetect = time.Second

// ServeAdmin serves h on l under the policy of its port, with or without mesh
// TLS, from before there is a certificate until ctx ends: the drain does not
// stop it. The probes are answered to everyone, so that a proxy whose policy
// service is away does not get its pod restarted.
func (in *Inbound) ServeAdmin(ctx context.Context, l net.Listener, h http.Handler) error {
	protected := in.limit(in.mesh(in.allow(in.filter(h))))
	queue := newHandoff(l.Addr())
	srv := in.server(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/live" || r.URL.Path == "/ready" {
			h.ServeHTTP(w, r)
			return
		}
		protected.ServeHTTP(w, r)
	}), false)
	srv.Protocols.SetUnencryptedHTTP2(true)
	srv.ReadHeaderTimeout, srv.IdleTimeout = 10*time.Second, 2*time.Minute

	closed := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(closed)
		_ = l.Close()
		// The answer to POST /shutdown may be on its way.
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = srv.Shutdown(last)
		_ = srv.Close()
	})
	go in.acceptAdmin(ctx, l, queue)
	err := srv.Serve(queue)
	if !stop() {
		<-closed
	}
	if errors.Is(err, http.ErrServerClosed) || errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

func (in *Inbound) acceptAdmin(ctx context.Context, l net.Listener, queue *handoff) {
	defer func() { _ = queue.Close() }()
	for {
		c, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			in.log.Warn("admin connection not accepted", "error", err)
			pause(ctx, 50*time.Millisecond)
			continue
		}
		go func() {
			if err := in.admin(ctx, c, queue); err != nil {
				_ = c.Close()
				in.log.Debug("admin connection refused", "client", c.RemoteAddr().String(), "error", err)
			}
		}()
	}
}

func (in *Inbound) admin(ctx context.Context, raw net.Conn, queue *handoff) error {
	target := addrPort(raw.LocalAddr())
	hello, c, err := detect.TLS(ctx, raw, adminDetect)
	if err != nil {
		return err
	}
	client := allow.Client{Addr: addrPort(raw.RemoteAddr()).Addr()}
	labels := tell.NoTLS(tell.NoTLSFromPeer)
	switch hello.SNI {
	case "":
	case in.deps.Identity.ServerName():
		secured, err := in.terminate(ctx, c)
		if err != nil {
			return err
		}
		client.TLS, client.ID = allow.Terminated, identity.PeerIdentity(secured.ConnectionState())
		c, labels = secured, tell.ClientTLS(client.ID)
	default:
		return errForeignName
	}
	p, free, err := in.policies.get(in.cfg.AdminListen.Port())
	if err != nil {
		return err
	}
	queue.give(&conn{Conn: c, session: newSession(client, labels, target, p), done: free})
	return nil
}

const errForeignName = refusal("TLS for another name")
