package main

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/weftmesh/weft/services/kit/conf"
	"github.com/weftmesh/weft/services/kit/hook"
	"github.com/weftmesh/weft/services/kit/obs"
	"github.com/weftmesh/weft/services/kit/run"
	"github.com/weftmesh/weft/services/policy/internal/admit"
)

// Webhooks are the settings of the webhooks. The first three have the names that
// Linkerd's policy controller gives them; its sp-validator is a process of its own.
type Webhooks struct {
	ServerAddr      conf.Addr     `help:"address of the webhook that judges policies and routes, TLS 1.3 only; empty means none, Linkerd's chart says :9443"`
	ServerTLSCerts  string        `help:"file with its certificate; re-read when it changes"`
	ServerTLSKey    string        `help:"file with the certificate's key"`
	ProfileAddr     conf.Addr     `help:"address of the webhook that judges ServiceProfiles, TLS 1.3 only; empty means none, Linkerd's chart says :8443"`
	ProfileTLSCerts string        `help:"file with its certificate; re-read when it changes"`
	ProfileTLSKey   string        `help:"file with the certificate's key"`
	WebhookLinger   time.Duration `help:"how long reviews are still taken after the service was asked to stop, while Kubernetes forgets its address"`
}

// defaultWebhooks serve nobody: where their certificates are is known only to
// whoever mounts them.
func defaultWebhooks() Webhooks {
	return Webhooks{
		ServerTLSCerts:  "/var/run/linkerd/tls/tls.crt",
		ServerTLSKey:    "/var/run/linkerd/tls/tls.key",
		ProfileTLSCerts: "/var/run/linkerd/profile-tls/tls.crt",
		ProfileTLSKey:   "/var/run/linkerd/profile-tls/tls.key",
		WebhookLinger:   5 * time.Second,
	}
}

// start opens the webhooks that have an address. They need nothing of the bus:
// what is wrong with an object can be seen in the object. A certificate that
// cannot be used ends the start, since nobody could call.
func (h Webhooks) start(s *run.Service) error {
	if h.ServerAddr == "" && h.ProfileAddr == "" {
		return nil
	}
	answers := admit.New(s.Metrics())
	for _, one := range []struct {
		name      string
		addr      conf.Addr
		cert, key string
		metric    string
		handler   http.Handler
	}{
		{"policy webhook", h.ServerAddr, h.ServerTLSCerts, h.ServerTLSKey, "weft_policy_certificate", answers.Policies()},
		{"profile webhook", h.ProfileAddr, h.ProfileTLSCerts, h.ProfileTLSKey, "weft_policy_profile_certificate", answers.Profiles()},
	} {
		if one.addr == "" {
			continue
		}
		certs := &hook.Certificates{CertFile: one.cert, KeyFile: one.key}
		if err := certs.Load(); err != nil {
			return err
		}
		certs.Measure(s.Metrics(), one.metric)
		lis, err := run.Listen(one.addr.String())
		if err != nil {
			return err
		}
		slog.Info("webhook listening", slog.String("webhook", one.name), obs.Addr(lis.Addr().String()))
		server := &hook.Server{Handler: one.handler, Certificates: certs, Linger: h.WebhookLinger}
		s.Part(one.name, func(ctx context.Context) error { return server.Serve(ctx, lis) })
	}
	return nil
}
