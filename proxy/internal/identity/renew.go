package identity

import (
	"context"
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"time"

	pb "github.com/linkerd/linkerd2-proxy-api/go/identity"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/status"

	"github.com/weftmesh/weft/services/kit/pause"
)

const (
	// renewAt is the share of the remaining life after which a new certificate is
	// asked for; renewJitter takes up to that much of it off, so that a rollout's
	// proxies do not all come back at once.
	renewAt     = 0.7
	renewJitter = 0.05
	// After a failure the next attempt comes soon, then later and later: MinRefresh,
	// doubling to retryMost, each longer by up to half, so that those who failed
	// together don't come back together. Never later than without the failure.
	retryMost   = 5 * time.Minute
	retryJitter = 0.5
	// What the service may ask us to wait for (google.rpc.RetryInfo).
	hintLeast, hintMost = 100 * time.Millisecond, time.Minute
	// certifyTimeout ends one attempt (spec/proxy.md §12.2: the client's failfast).
	certifyTimeout = 30 * time.Second
)

// Run gets a certificate, and a new one before each expires, until ctx ends. A
// failure never ends it: the old certificate stays in use until it expires.
func (l *Local) Run(ctx context.Context) error {
	if l.cfg.SPIRE.Socket != "" {
		return l.followSPIRE(ctx)
	}
	failures := 0
	for {
		err := l.renew(ctx)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err == nil {
			failures = 0
		} else {
			failures++
		}
		wait := l.delay(l.now(), failures, err)
		if err != nil {
			l.metrics.failed()
			l.log.Warn("the certificate was not renewed", "error", err, "again_in", wait, "expires", l.Expires())
		}
		if !pause.For(ctx, wait) {
			return context.Cause(ctx)
		}
	}
}

// delay is 70 % of what remains of the certificate's life, within the
// configured bounds, and less after failures. A clock that steps back cannot
// make it negative.
func (l *Local) delay(now time.Time, failures int, err error) time.Duration {
	expires := l.Expires()
	if failures == 0 && !expires.IsZero() {
		return l.until(now, expires)
	}
	hint, hinted := hint(err)
	if expires.IsZero() { // a pod waits for it: no longer pauses
		if hinted {
			return hint
		}
		return l.stretch(l.cfg.MinRefresh)
	}
	wait := l.stretch(min(l.cfg.MinRefresh<<min(failures-1, 16), max(retryMost, l.cfg.MinRefresh)))
	if hinted {
		wait = max(wait, hint)
	}
	return min(wait, l.until(now, expires))
}

// hint is for how long the service wants to be left alone. It has spread the
// proxies it said so to.
func hint(err error) (time.Duration, bool) {
	if err == nil {
		return 0, false
	}
	for _, detail := range status.Convert(err).Details() {
		if info, ok := detail.(*errdetails.RetryInfo); ok {
			return min(max(info.GetRetryDelay().AsDuration(), hintLeast), hintMost), true
		}
	}
	return 0, false
}

func (l *Local) until(now, expires time.Time) time.Duration {
	left := max(expires.Sub(now), 0)
	wait := time.Duration(float64(left) * renewAt)
	return max(l.spread(min(wait, l.cfg.MaxRefresh)), l.cfg.MinRefresh)
}

func (l *Local) spread(d time.Duration) time.Duration {
	return d - time.Duration(float64(d)*renewJitter*l.jitter())
}

func (l *Local) stretch(d time.Duration) time.Duration {
	return d + time.Duration(float64(d)*retryJitter*l.jitter())
}

func (l *Local) renew(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, certifyTimeout)
	defer cancel()
	token, err := nonEmpty(l.cfg.TokenFile)
	if err != nil {
		return fmt.Errorf("reading the token: %w", err)
	}
	conn, err := l.dial(ctx, l)
	if err != nil {
		return fmt.Errorf("connecting to the identity service: %w", err)
	}
	defer conn.Close()
	res, err := pb.NewIdentityClient(conn).Certify(ctx, &pb.CertifyRequest{
		Identity:                  l.cfg.Name,
		Token:                     token,
		CertificateSigningRequest: l.csr,
	})
	if err != nil {
		return fmt.Errorf("asking for a certificate: %w", err)
	}
	cert, chain, err := l.accept(res)
	if err != nil {
		return fmt.Errorf("checking the new certificate: %w", err)
	}
	l.use(cert, earliest(res.GetValidUntil().AsTime(), chain))
	return nil
}

// use puts a certificate in use, until a time.
func (l *Local) use(cert *tls.Certificate, expires time.Time) {
	l.install(cert, expires)
	l.metrics.renewed(l.now(), expires)
	l.log.Info("certificate renewed", "identity", l.cfg.Name, "expires", expires)
}

// earliest is when a certificate is of no more use: peers refuse it with the first
// of its chain that has ended.
func earliest(end time.Time, chain []*x509.Certificate) time.Time {
	for _, c := range chain {
		if c.NotAfter.Before(end) {
			end = c.NotAfter
		}
	}
	return end
}

// accept takes a certificate only if it is for our key and name and leads to our
// trust anchors: a bad one must not replace a good one.
func (l *Local) accept(res *pb.CertifyResponse) (*tls.Certificate, []*x509.Certificate, error) {
	if res.GetValidUntil() == nil {
		return nil, nil, errors.New("no validity")
	}
	if !res.GetValidUntil().AsTime().After(l.now()) {
		return nil, nil, errors.New("already expired")
	}
	leaf, err := x509.ParseCertificate(res.GetLeafCertificate())
	if err != nil {
		return nil, nil, err
	}
	cert := &tls.Certificate{PrivateKey: l.key, Leaf: leaf, Certificate: [][]byte{leaf.Raw}}
	chain := []*x509.Certificate{leaf}
	for _, der := range res.GetIntermediateCertificates() {
		c, err := x509.ParseCertificate(der)
		if err != nil {
			return nil, nil, err
		}
		chain = append(chain, c)
		cert.Certificate = append(cert.Certificate, c.Raw)
	}
	return cert, chain, l.fits(l.key, chain, l.anchors.Load())
}

// fits checks a certificate of our own.
func (l *Local) fits(key *ecdsa.PrivateKey, chain []*x509.Certificate, anchors *x509.CertPool) error {
	if !key.PublicKey.Equal(chain[0].PublicKey) {
		return errors.New("made for another key")
	}
	if !matches(chain[0], l.cfg.Name) {
		return fmt.Errorf("made for %v, not for %s", names(chain[0]), l.cfg.Name)
	}
	return l.verify(chain, anchors, x509.ExtKeyUsageServerAuth)
}
