// Command injector adds the proxy to pods: a mutating webhook.
//
// It reads what namespaces ask for from the bus and its settings from files; it
// has no Kubernetes credentials and keeps nothing.
package main

import (
	"context"
	"log/slog"
	"time"

	"github.com/weftmesh/weft/bus"
	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
	"github.com/weftmesh/weft/services/injector/internal/feed"
	"github.com/weftmesh/weft/services/injector/internal/serve"
	"github.com/weftmesh/weft/services/injector/internal/settings"
	"github.com/weftmesh/weft/services/kit/build"
	"github.com/weftmesh/weft/services/kit/conf"
	"github.com/weftmesh/weft/services/kit/hook"
	"github.com/weftmesh/weft/services/kit/obs"
	"github.com/weftmesh/weft/services/kit/run"
)

type config struct {
	Listen              conf.Addr     `help:"address of the webhook; TLS 1.3 only"`
	Cert                string        `help:"file with the webhook's certificate; re-read when it changes"`
	Key                 string        `help:"file with the certificate's key"`
	Config              string        `help:"file with the mesh's values (YAML); re-read when it changes; empty means the defaults"`
	TrustAnchors        string        `help:"file with the trust anchors (PEM); empty means identityTrustAnchorsPEM of the values"`
	ControllerNamespace string        `help:"namespace of the control plane"`
	Namespaces          string        `help:"where namespaces' annotations come from: bus or none"`
	Bus                 bus.Config    `help:"where the mesh's events are"`
	Linger              time.Duration `help:"how long calls are still taken after the service was asked to stop, while Kubernetes forgets its address"`
	Obs                 obs.Config    `help:"logs, metrics and traces"`
}

func defaults() config {
	return config{
		Listen:              ":8443",
		Cert:                "/var/run/linkerd/tls/tls.crt",
		Key:                 "/var/run/linkerd/tls/tls.key",
		Config:              "/var/run/linkerd/config/values",
		TrustAnchors:        "/var/run/linkerd/identity/trust-roots/ca-bundle.crt",
		ControllerNamespace: "linkerd",
		Namespaces:          "bus",
		Linger:              5 * time.Second,
		Obs:                 obs.Config{Admin: "127.0.0.1:9995"},
	}
}

// Check judges the settings.
func (c config) Check() error {
	if c.Namespaces != "bus" && c.Namespaces != "none" {
		return conf.Bad("Namespaces", "%q is neither bus nor none", c.Namespaces)
	}
	if c.Linger < 0 {
		return conf.Bad("Linger", "%s is negative", c.Linger)
	}
	if c.ControllerNamespace == "" {
		return conf.Bad("ControllerNamespace", "it is empty")
	}
	return nil
}

func main() { run.Main("injector", wire) }

// wire assembles the webhook. Files are read here, once, so that a process that
// could not answer does not start.
func wire(ctx context.Context, s *run.Service) error {
	cfg, err := conf.Load(defaults())
	if err != nil {
		return err
	}
	if err := obs.Attach(ctx, s, cfg.Obs); err != nil {
		return err
	}
	source := &settings.Source{Path: cfg.Config, AnchorsPath: cfg.TrustAnchors, Version: build.Version()}
	source.Measure(s.Metrics())
	if _, err := source.Get(); err != nil {
		return err
	}
	certs := &hook.Certificates{CertFile: cfg.Cert, KeyFile: cfg.Key}
	if err := certs.Load(); err != nil {
		return err
	}
	certs.Measure(s.Metrics(), "weft_injector_certificate")
	admitter := &serve.Admitter{Settings: source, Namespaces: feed.None{}, ControllerNamespace: cfg.ControllerNamespace}
	admitter.Measure(s.Metrics())
	if cfg.Namespaces == "bus" {
		names, err := namespaces(ctx, s, cfg.Bus)
		if err != nil {
			return err
		}
		names.Gone = admitter.Forget
		admitter.Namespaces = names
	}
	lis, err := run.Listen(cfg.Listen.String())
	if err != nil {
		return err
	}
	slog.Info("webhook listening", obs.Addr(lis.Addr().String()))
	s.Part("webhook", func(ctx context.Context) error {
		return (&hook.Server{Handler: serve.Handler(admitter), Certificates: certs, Linger: cfg.Linger}).Serve(ctx, lis)
	})
	return nil
}

// presenceEvery is how often a process says that it is alive.
const presenceEvery = 2 * time.Second

// namespaces follows the bus's table, and announces this process there.
func namespaces(ctx context.Context, s *run.Service, cfg bus.Config) (*feed.Feed, error) {
	events, err := bus.Connect(ctx, cfg, s.Name(), s.Metrics())
	if err != nil {
		return nil, err
	}
	reader := bus.NewReader(events, bus.ReaderConfig{Registry: s.Metrics(), Tables: feed.Tables()})
	names := feed.New(reader)
	base := bus.NewPresence(s.Name(), build.Version(), events.Cluster())
	s.Part("bus", events.Run)
	s.Part("log", reader.Run)
	s.Part("feed", names.Run)
	s.Part("presence", func(ctx context.Context) error {
		return bus.Announce(ctx, events, presenceEvery, func() *busv1.Presence {
			return bus.FrontPresence(base, reader.Status(), len(s.NotReady()) == 0)
		})
	})
	s.Ready("bus", reader.Synced)
	return names, nil
}
