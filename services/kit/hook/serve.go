// Package hook serves what Kubernetes' API server calls over HTTPS: webhooks.
//
// It knows nothing of what is asked. A handler reads its request with Bodies,
// which bounds what all of them hold together; Server never cuts a call off that
// the API server could still make.
package hook

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"time"

	"golang.org/x/net/netutil"

	"github.com/weftmesh/weft/services/kit/run"
)

// idle is how long a connection is kept without a request.
const idle = 2 * time.Minute

// Server is a webhook's listener and how it ends.
type Server struct {
	Handler      http.Handler
	Certificates *Certificates
	// Linger is how long new connections are still taken after the end was asked
	// for. A call that Kubernetes sends here meanwhile must not fail: with failure
	// policy Ignore, its object would be taken unseen.
	Linger time.Duration
}

// Serve answers on lis until ctx ends, and Linger longer. There is no plain
// HTTP: the API server speaks TLS to webhooks only.
func (s *Server) Serve(ctx context.Context, lis net.Listener) error {
	srv := &http.Server{
		Handler: s.Handler,
		// The API server keeps connections for 90 s, some of which it has made and
		// not used yet: net/http counts their first request's time from the start of
		// the connection. So there is no ReadTimeout (Bodies.Read has a deadline), and
		// connections end by the API server's hand: with failure policy Ignore, the
		// object of a call that meets an end is taken unseen.
		ReadHeaderTimeout: idle,
		WriteTimeout:      30 * time.Second,
		IdleTimeout:       idle,
		MaxHeaderBytes:    64 << 10,
		HTTP2:             &http.HTTP2Config{MaxConcurrentStreams: maxReviews},
		TLSConfig:         &tls.Config{MinVersion: tls.VersionTLS13, GetCertificate: s.Certificates.Get},
		ErrorLog:          slog.NewLogLogger(slog.Default().Handler(), slog.LevelDebug),
	}
	ended := make(chan error, 1)
	go func() { ended <- srv.ServeTLS(netutil.LimitListener(lis, maxConnections), "", "") }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	// Connections that stay end with their next answer, so that the API server
	// looks for another replica.
	srv.SetKeepAlivesEnabled(false)
	lingering := time.NewTimer(min(s.Linger, run.Grace(ctx)/2))
	defer lingering.Stop()
	select {
	case err := <-ended:
		return err
	case <-lingering.C:
	}
	stopping, cancel := run.Ending(ctx, 10*time.Second)
	defer cancel()
	if err := srv.Shutdown(stopping); err != nil {
		_ = srv.Close() // the requests still running are cut off
	}
	if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
