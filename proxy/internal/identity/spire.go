package identity

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"

	"github.com/spiffe/go-spiffe/v2/proto/spiffe/workload"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/weftmesh/weft/services/kit/pause"
)

// followSPIRE takes key, certificate and trust anchors from SPIRE's Workload API
// (spec/proxy.md §12.3), which sends new ones in time, until ctx ends. An outage
// leaves those in use.
func (l *Local) followSPIRE(ctx context.Context) error {
	conn, err := grpc.NewClient("unix:"+l.cfg.SPIRE.Socket, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithNoProxy())
	if err != nil {
		return fmt.Errorf("connecting to SPIRE at %s: %w", l.cfg.SPIRE.Socket, err)
	}
	defer conn.Close()
	api := workload.NewSpiffeWorkloadAPIClient(conn)
	for attempt := 0; ; attempt++ {
		got, err := l.readSPIRE(ctx, api)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if got {
			attempt = 0
		}
		l.metrics.failed()
		if status.Code(err) == codes.InvalidArgument {
			l.log.Error("SPIRE refuses this proxy for good, what it gave is used until it expires", "error", err, "expires", l.Expires())
			<-ctx.Done()
			return context.Cause(ctx)
		}
		wait := l.cfg.SPIRE.Backoff.After(attempt, l.jitter())
		l.log.Warn("SPIRE is asked again", "error", err, "again_in", wait, "expires", l.Expires())
		if !pause.For(ctx, wait) {
			return context.Cause(ctx)
		}
	}
}

// readSPIRE reads one stream to its end, and reports whether it gave anything of
// use.
func (l *Local) readSPIRE(ctx context.Context, api workload.SpiffeWorkloadAPIClient) (got bool, err error) {
	ctx, cancel := context.WithCancel(metadata.AppendToOutgoingContext(ctx, "workload.spiffe.io", "true"))
	defer cancel()
	stream, err := api.FetchX509SVID(ctx, &workload.X509SVIDRequest{})
	if err != nil {
		return false, err
	}
	for {
		res, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return got, errors.New("the stream has ended")
		}
		if err != nil {
			return got, err
		}
		cert, anchors, err := l.ofSPIRE(res)
		if err != nil {
			return got, fmt.Errorf("reading what SPIRE sent: %w", err)
		}
		got = true
		l.anchors.Store(anchors)
		l.use(cert, cert.Leaf.NotAfter)
	}
}

// ofSPIRE finds this proxy's own among the identities of a workload.
func (l *Local) ofSPIRE(res *workload.X509SVIDResponse) (*tls.Certificate, *x509.CertPool, error) {
	for _, svid := range res.GetSvids() {
		if svid.GetSpiffeId() != l.cfg.Name {
			continue
		}
		key, err := x509.ParsePKCS8PrivateKey(svid.GetX509SvidKey())
		if err != nil {
			return nil, nil, errors.New("the key cannot be read") // whose text might tell of it
		}
		own, ok := key.(*ecdsa.PrivateKey)
		if !ok || own.Curve != elliptic.P256() {
			return nil, nil, errors.New("want an ECDSA P-256 key")
		}
		chain, err := x509.ParseCertificates(svid.GetX509Svid())
		if err != nil || len(chain) == 0 {
			return nil, nil, fmt.Errorf("no certificate: %w", errors.Join(err))
		}
		roots, err := x509.ParseCertificates(svid.GetBundle())
		if err != nil || len(roots) == 0 {
			return nil, nil, fmt.Errorf("no trust anchors: %w", errors.Join(err))
		}
		anchors := pool(roots)
		if err := l.fits(own, chain, anchors); err != nil {
			return nil, nil, err
		}
		cert := &tls.Certificate{PrivateKey: own, Leaf: chain[0]}
		for _, c := range chain {
			cert.Certificate = append(cert.Certificate, c.Raw)
		}
		return cert, anchors, nil
	}
	return nil, nil, fmt.Errorf("%s is not among the %d identities of this workload", l.cfg.Name, len(res.GetSvids()))
}
