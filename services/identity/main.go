// Command identity signs certificates for proxies.
//
// A proxy shows its service account's token and a signing request; it gets a
// short-lived certificate for the one name that the token entitles it to. The
// service keeps nothing: any replica that holds the issuer can answer.
package main

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	pb "github.com/linkerd/linkerd2-proxy-api/go/identity"

	"github.com/weftmesh/weft/bus"
	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
	"github.com/weftmesh/weft/services/identity/internal/issue"
	"github.com/weftmesh/weft/services/identity/internal/issuer"
	"github.com/weftmesh/weft/services/identity/internal/serve"
	"github.com/weftmesh/weft/services/kit/build"
	"github.com/weftmesh/weft/services/kit/conf"
	"github.com/weftmesh/weft/services/kit/obs"
	"github.com/weftmesh/weft/services/kit/rpc"
	"github.com/weftmesh/weft/services/kit/run"
)

type config struct {
	Listen                     conf.Addr     `help:"address of the gRPC API"`
	ControllerNamespace        string        `help:"namespace of the control plane; part of every identity"`
	IdentityTrustDomain        string        `help:"trust domain; every identity ends in it; empty: the process does nothing and ends"`
	IdentityScheme             string        `help:"how the issuer's files are named: linkerd.io/tls (crt.pem, key.pem) or kubernetes.io/tls (tls.crt, tls.key); empty: the process does nothing and ends"`
	IdentityIssuanceLifetime   time.Duration `help:"life of a certificate; never beyond the issuer's"`
	IdentityClockSkewAllowance time.Duration `help:"clock difference between machines that is allowed for"`
	Issuer                     string        `help:"directory with the issuer's certificate and key"`
	TrustAnchors               string        `help:"file with the trust anchors, PEM"`
	Tokens                     string        `help:"who checks tokens: kube (TokenReview), or jwks:FILE with a JWK set or PEM public keys"`
	OfflineTokens              time.Duration `help:"for how long after the API server was last heard its cached keys may vouch for tokens; 0 means never"`
	Kubeconfig                 string        `help:"kubeconfig for -tokens kube; empty means the pod's own account"`
	KubeApiclientQPS           int           `help:"Linkerd's name for limit.rate, which wins; 0 means 100"`
	KubeApiclientBurst         int           `help:"Linkerd's name for limit.burst, which wins; 0 means 200"`
	Limit                      serve.Limits  `help:"how fast certificates may be asked for"`
	Bus                        bus.Config    `help:"bus to announce this process on; with no servers it is not announced"`
	API                        rpc.Config    `help:"limits on the API"`
	Obs                        obs.Config    `help:"logs, metrics and traces"`
}

// defaults are those of Linkerd's chart.
func defaults() config {
	return config{
		Listen:                     ":8080",
		ControllerNamespace:        "linkerd",
		IdentityTrustDomain:        "cluster.local",
		IdentityScheme:             "linkerd.io/tls",
		IdentityIssuanceLifetime:   issue.DefaultLifetime,
		IdentityClockSkewAllowance: 20 * time.Second,
		Issuer:                     "/var/run/linkerd/identity/issuer",
		TrustAnchors:               "/var/run/linkerd/identity/trust-roots/ca-bundle.crt",
		Tokens:                     "kube",
		OfflineTokens:              time.Hour,
		Obs:                        obs.Config{Admin: "127.0.0.1:9990"},
	}
}

// Check judges the settings.
func (c config) Check() error {
	if c.disabled() {
		return nil
	}
	if err := c.domain().Check(); err != nil {
		return fmt.Errorf("identities cannot be DNS names: %w", err)
	}
	if c.IdentityScheme != "linkerd.io/tls" && c.IdentityScheme != "kubernetes.io/tls" {
		return conf.Bad("IdentityScheme", "%q is neither linkerd.io/tls nor kubernetes.io/tls", c.IdentityScheme)
	}
	if c.IdentityIssuanceLifetime < 0 {
		return conf.Bad("IdentityIssuanceLifetime", "%s is below zero", c.IdentityIssuanceLifetime)
	}
	if c.IdentityClockSkewAllowance < 0 {
		return conf.Bad("IdentityClockSkewAllowance", "%s is below zero", c.IdentityClockSkewAllowance)
	}
	if c.OfflineTokens < 0 || c.OfflineTokens > 24*time.Hour {
		return conf.Bad("OfflineTokens", "%s is not between 0 and 24h", c.OfflineTokens)
	}
	if c.KubeApiclientQPS < 0 {
		return conf.Bad("KubeApiclientQPS", "%d is below zero", c.KubeApiclientQPS)
	}
	if c.KubeApiclientBurst < 0 {
		return conf.Bad("KubeApiclientBurst", "%d is below zero", c.KubeApiclientBurst)
	}
	if file, ok := strings.CutPrefix(c.Tokens, "jwks:"); c.Tokens != "kube" && (!ok || file == "") {
		return conf.Bad("Tokens", "%q is neither kube nor jwks:FILE", c.Tokens)
	}
	return nil
}

// disabled says whether there is nothing to do: Linkerd's identity service
// without a scheme or a trust domain ends with 0, too.
func (c config) disabled() bool { return c.IdentityScheme == "" || c.IdentityTrustDomain == "" }

// limits are those of -limit. Each request costs the API server one review, and
// so its rate is the one that Linkerd calls the client's.
func (c config) limits() serve.Limits {
	l := c.Limit
	l.Rate = cmp.Or(l.Rate, c.KubeApiclientQPS)
	l.Burst = cmp.Or(l.Burst, c.KubeApiclientBurst)
	return l
}

func (c config) domain() issue.Domain {
	return issue.Domain{ControllerNamespace: c.ControllerNamespace, TrustDomain: c.IdentityTrustDomain}
}

func main() { run.Main("identity", wire) }

// wire assembles the service. The issuer is loaded here, once, so that a
// process that could never issue does not start.
func wire(ctx context.Context, s *run.Service) error {
	cfg, err := conf.Load(defaults())
	if err != nil {
		return err
	}
	if cfg.disabled() {
		slog.Info("identity is disabled: no scheme or no trust domain is set")
		return nil
	}
	if err := obs.Attach(ctx, s, cfg.Obs); err != nil {
		return err
	}
	from, err := reviewer(ctx, s, cfg)
	if err != nil {
		return err
	}
	held := issuer.New(issuer.Files{
		Dir: cfg.Issuer, Scheme: cfg.IdentityScheme, Anchors: cfg.TrustAnchors,
	}, time.Now, from.told(cfg.ControllerNamespace), s.Metrics())
	if err := held.Load(); err != nil {
		return fmt.Errorf("loading the issuer: %w", err)
	}
	if err := announce(ctx, s, cfg.Bus); err != nil {
		return err
	}
	lis, err := run.Listen(cfg.Listen.String())
	if err != nil {
		return err
	}
	slog.Info("api listening", obs.Addr(lis.Addr().String()))
	srv := rpc.NewServer(s.Metrics(), cfg.API.Options()...)
	pb.RegisterIdentityServer(srv, serve.New(serve.Config{
		Domain:   cfg.domain(),
		Validity: issue.Validity{Lifetime: cfg.IdentityIssuanceLifetime, Skew: cfg.IdentityClockSkewAllowance},
		Issuers:  held,
		Tokens:   from.tokens,
		Limits:   cfg.limits(),
		Now:      time.Now,
		Record:   from.events.Record,
	}, s.Metrics()))

	from.parts(s)
	s.Part("issuer", held.Run)
	s.Part("api", func(ctx context.Context) error { return rpc.Serve(ctx, srv, lis) })
	s.Ready("issuer", held.Ready)
	return nil
}

// presenceEvery is how often a process says that it is alive.
const presenceEvery = 2 * time.Second

// announce publishes presence if a bus is configured; signing never needs one.
func announce(ctx context.Context, s *run.Service, cfg bus.Config) error {
	if len(cfg.Servers) == 0 {
		return nil
	}
	events, err := bus.Connect(ctx, cfg, s.Name(), s.Metrics())
	if err != nil {
		return err
	}
	base := bus.NewPresence(s.Name(), build.Version(), events.Cluster())
	s.Part("bus", events.Run)
	s.Part("presence", func(ctx context.Context) error {
		return bus.Announce(ctx, events, presenceEvery, func() *busv1.Presence {
			return bus.FrontPresence(base, bus.Status{Synced: true}, len(s.NotReady()) == 0)
		})
	})
	return nil
}
