package rotate

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/weftmesh/weft/services/kit/say"
)

const (
	atOnce    = 16               // proxies asked at the same time
	probeTime = 15 * time.Second // for one of them, through API server and kubelet
)

// dialer opens a connection to a pod's port; *kube.Client has it.
type dialer interface {
	Dial(ctx context.Context, ns, pod string, port int) (net.Conn, error)
}

// Probe asks the running ones among the proxies for their certificates, and
// writes down what they showed or why they did not.
func Probe(ctx context.Context, through dialer, proxies []Proxy) {
	free := make(chan struct{}, atOnce)
	var all sync.WaitGroup
	for i := range proxies {
		p := &proxies[i]
		if !p.Running {
			p.Silent = "its proxy does not run"
			continue
		}
		free <- struct{}{}
		all.Go(func() {
			defer func() { <-free }()
			chain, err := show(ctx, through, *p)
			p.Chain, p.Silent = chain, ""
			if err != nil {
				p.Silent = words(err)
			}
		})
	}
	all.Wait()
}

// show asks one proxy: a TLS handshake with its identity as the name, on its
// admin port. What it shows is looked at, not trusted.
func show(ctx context.Context, through dialer, p Proxy) ([]*x509.Certificate, error) {
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	raw, err := through.Dial(ctx, p.Namespace, p.Pod, p.AdminPort)
	if err != nil {
		return nil, err
	}
	defer func() { _ = raw.Close() }() // nothing was sent
	conn := tls.Client(raw, &tls.Config{
		MinVersion: tls.VersionTLS13, ServerName: p.Identity,
		InsecureSkipVerify: true, //nolint:gosec // to be shown or judged, not believed
	})
	if err := conn.HandshakeContext(ctx); err != nil {
		return nil, fmt.Errorf("asking its port %d for a certificate: %w", p.AdminPort, err)
	}
	return conn.ConnectionState().PeerCertificates, nil
}

// mostWords bounds what is quoted of an error, in bytes.
const mostWords = 160

// words is an error on one line for a list, in our own words where the cause is
// a common one: what a kubelet says of a closed port fills half a screen.
func words(err error) string {
	text := err.Error()
	if p, ok := errors.AsType[*say.Problem](err); ok && p.Why != "" {
		text = p.Why
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return "no answer in time"
	case strings.Contains(text, "connection refused"):
		return "nothing listens on its admin port"
	case strings.Contains(text, "tls: internal error"), strings.Contains(text, "tls: handshake failure"):
		return "it has no certificate yet"
	case len(text) > mostWords:
		return strings.ToValidUTF8(text[:mostWords], "") + "…"
	}
	return text
}
