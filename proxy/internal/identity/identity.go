// Package identity holds the proxy's own certificate and the rule by which it
// knows others. There is one Local per process: Run keeps the certificate fresh,
// everybody else asks ServerTLS and ClientTLS for each new connection and so
// always gets the newest. Running connections keep the certificate they began with.
package identity

import (
	"context"
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"

	"github.com/weftmesh/weft/proxy/internal/config"
	"github.com/weftmesh/weft/proxy/internal/header"
)

// Deps is what a Local needs from the rest of the process.
type Deps struct {
	Config config.Identity
	// Dial opens a connection to the identity service; one is made for each call
	// to Certify, so that a dead one is never held on to.
	Dial    func(context.Context, *Local) (*grpc.ClientConn, error)
	Log     *slog.Logger          // nil means slog.Default
	Metrics prometheus.Registerer // nil means none
}

// Local is the proxy's identity.
type Local struct {
	cfg     config.Identity
	dial    func(context.Context, *Local) (*grpc.ClientConn, error)
	log     *slog.Logger
	key     *ecdsa.PrivateKey
	csr     []byte
	metrics *metrics

	anchors   atomic.Pointer[x509.CertPool]
	cert      atomic.Pointer[tls.Certificate]
	expires   atomic.Pointer[time.Time] // of cert
	servers   atomic.Pointer[serverConfigs]
	ready     chan struct{}
	readyOnce sync.Once

	now    func() time.Time // real outside tests
	jitter func() float64   // in [0,1)
}

type serverConfigs struct{ plain, direct *tls.Config }

// New loads the key and signing request from the identity directory, or makes
// them there, and parses the trust anchors; all of these come later if they come
// from SPIRE. There must be a token, too. It talks to nobody.
func New(deps Deps) (*Local, error) {
	log := deps.Log
	if log == nil {
		log = slog.Default()
	}
	l := &Local{
		cfg: deps.Config, dial: deps.Dial, log: log, metrics: newMetrics(deps.Metrics),
		ready: make(chan struct{}), now: time.Now, jitter: rand.Float64,
	}
	l.anchors.Store(x509.NewCertPool())
	if deps.Config.SPIRE.Socket != "" {
		return l, nil
	}
	anchors, err := ParseAnchors(deps.Config.Anchors)
	if len(anchors) == 0 {
		return nil, fmt.Errorf("starting the identity: %w", err)
	}
	if err != nil {
		log.Warn("some trust anchors cannot be read, the others are used", "error", err)
	}
	l.anchors.Store(pool(anchors))
	if l.key, l.csr, err = loadKey(deps.Config.Dir, deps.Config.Name); err != nil {
		return nil, fmt.Errorf("starting the identity: %w", err)
	}
	if _, err := nonEmpty(deps.Config.TokenFile); err != nil {
		return nil, fmt.Errorf("starting the identity: %w: %w", ErrDocuments, err)
	}
	return l, nil
}

// Name is the identity the proxy proves to others.
func (l *Local) Name() string { return l.cfg.Name }

// ServerName is the SNI by which clients say that they want this proxy to
// terminate TLS.
func (l *Local) ServerName() string { return l.cfg.ServerName }

// Ready is closed when the first certificate is installed, and stays closed.
func (l *Local) Ready() <-chan struct{} { return l.ready }

// Expires is the end of the certificate in use, or zero before the first.
func (l *Local) Expires() time.Time {
	if t := l.expires.Load(); t != nil {
		return *t
	}
	return time.Time{}
}

func (l *Local) install(cert *tls.Certificate, expires time.Time) {
	l.cert.Store(cert)
	l.expires.Store(&expires)
	l.servers.Store(&serverConfigs{plain: l.server(cert), direct: l.server(cert, header.ALPN)})
	l.readyOnce.Do(func() { close(l.ready) })
}

// proves checks a server's certificate.
func (l *Local) proves(chain []*x509.Certificate, id string) error {
	if len(chain) == 0 {
		return &refusal{ruleNone, errors.New("the peer sent no certificate")}
	}
	if err := l.verify(chain, l.anchors.Load(), x509.ExtKeyUsageServerAuth); err != nil {
		return err
	}
	if !matches(chain[0], id) {
		return &refusal{ruleName, fmt.Errorf("certificate does not match TLS identity %q", id)}
	}
	return nil
}

// exchanges are the key exchanges in the order of the spec; those that are not
// allowed in FIPS mode the library leaves out.
var exchanges = []tls.CurveID{tls.X25519MLKEM768, tls.X25519, tls.CurveP256, tls.CurveP384}

// ServerTLS terminates connections to this proxy: TLS 1.3 only, a client
// certificate asked for but not demanded, and verified when given. The ALPN
// transport.l5d.io/v1 is selected when the client offers it; an offer of others
// only is ignored rather than refused.
func (l *Local) ServerTLS() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			s := l.servers.Load()
			if s == nil {
				return nil, errors.New("no certificate yet")
			}
			if slices.Contains(hello.SupportedProtos, header.ALPN) {
				return s.direct, nil
			}
			return s.plain, nil
		},
	}
}

func (l *Local) server(cert *tls.Certificate, alpn ...string) *tls.Config {
	return &tls.Config{
		MinVersion:             tls.VersionTLS13,
		CurvePreferences:       exchanges,
		NextProtos:             alpn,
		Certificates:           []tls.Certificate{*cert},
		ClientAuth:             tls.RequestClientCert,
		SessionTicketsDisabled: true, // a resumed session would skip the check below
		// A large write is whole records from the start: the other end is a proxy, which
		// gains nothing from the first byte coming early.
		DynamicRecordSizingDisabled: true,
		VerifyConnection: func(cs tls.ConnectionState) error {
			if len(cs.PeerCertificates) == 0 {
				return nil
			}
			return l.refused("client", l.verify(cs.PeerCertificates, l.anchors.Load(), x509.ExtKeyUsageClientAuth))
		},
	}
}

// ClientTLS connects to a peer that must prove id. sni is what the peer's proxy
// recognises itself by; it need not be in the certificate.
func (l *Local) ClientTLS(id, sni string, alpn ...string) *tls.Config {
	return &tls.Config{
		MinVersion:                  tls.VersionTLS13,
		ServerName:                  sni,
		CurvePreferences:            exchanges,
		NextProtos:                  alpn,
		DynamicRecordSizingDisabled: true, // see above
		// The library would compare the certificate with the SNI. The check that
		// counts is VerifyConnection's, which runs for every connection.
		InsecureSkipVerify: true, //nolint:gosec // verified below
		VerifyConnection: func(cs tls.ConnectionState) error {
			return l.refused("server", l.proves(cs.PeerCertificates, id))
		},
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			if cert := l.cert.Load(); cert != nil {
				return cert, nil
			}
			return &tls.Certificate{}, nil // none yet: the first call to Certify
		},
	}
}
