package hook

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weftmesh/weft/services/kit/obs"
)

// Certificates has a webhook's certificate, as its files have it. They are
// looked at when a client connects, at most once a second: the API server
// connects seldom, and nothing has to be watched.
type Certificates struct {
	CertFile, KeyFile string
	Now               func() time.Time // nil means time.Now

	mu      sync.Mutex
	next    time.Time // when to look again
	raw     [2][]byte
	current *tls.Certificate
	lastErr string
}

// lookEvery bounds how often the files are read.
const lookEvery = time.Second

// Measure registers the gauge of the certificate's end, under the name of what
// it is for, such as weft_injector_certificate.
func (c *Certificates) Measure(reg prometheus.Registerer, name string) {
	reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: name + "_not_after_seconds",
		Help: "Unix time at which the webhook's certificate expires; 0 until one is loaded.",
	}, func() float64 {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.current == nil || c.current.Leaf == nil {
			return 0
		}
		return float64(c.current.Leaf.NotAfter.Unix())
	}))
}

// Load reads the files at once; for the start, where a failure is final.
func (c *Certificates) Load() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.look()
}

// Get is for tls.Config.GetCertificate. A pair of files that cannot be used
// leaves the former one in use.
func (c *Certificates) Get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.look(); err != nil {
		if c.current == nil {
			return nil, err
		}
		if text := err.Error(); text != c.lastErr {
			c.lastErr = text
			slog.Warn("certificate is not usable, the former one stays in use", obs.Error(err))
		}
	}
	return c.current, nil
}

func (c *Certificates) look() error {
	now := time.Now
	if c.Now != nil {
		now = c.Now
	}
	at := now()
	if at.Before(c.next) {
		return nil
	}
	if c.current != nil {
		// Also after a failure: what is broken is not read for each connection.
		c.next = at.Add(lookEvery)
	}
	cert, err := os.ReadFile(c.CertFile)
	if err != nil {
		return fmt.Errorf("reading the certificate: %w", err)
	}
	key, err := os.ReadFile(c.KeyFile)
	if err != nil {
		return fmt.Errorf("reading the certificate's key: %w", err)
	}
	if c.current == nil || !bytes.Equal(cert, c.raw[0]) || !bytes.Equal(key, c.raw[1]) {
		pair, err := tls.X509KeyPair(cert, key)
		if err != nil {
			return fmt.Errorf("loading the certificate: %w", err)
		}
		if c.current != nil {
			slog.Info("certificate reloaded", "not_after", pair.Leaf.NotAfter)
		}
		c.raw, c.current, c.lastErr = [2][]byte{cert, key}, &pair, ""
	}
	c.next = at.Add(lookEvery) // the first time, too
	return nil
}
