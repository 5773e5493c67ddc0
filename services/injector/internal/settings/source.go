// Package settings reads the files that every pod's proxy is made from: the
// mesh's values and its trust anchors.
//
// Each request reads them anew, as Linkerd does, so that a changed ConfigMap
// needs no restart. What cannot be used does not replace what could: the last
// good content of each file stays in use, and that is logged and counted.
package settings

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weftmesh/weft/services/injector/internal/values"
	"github.com/weftmesh/weft/services/kit/obs"
)

// maxFile bounds each file read, in bytes; a ConfigMap holds at most 1 MiB.
const maxFile = 1 << 20

// Settings are what one request is answered with. They never change.
type Settings struct {
	Values *values.Values
	// Anchors is the trust bundle, PEM.
	Anchors string
}

// Source gives the settings as the files have them now.
type Source struct {
	Path        string // of the values; empty means the defaults
	AnchorsPath string // empty means identityTrustAnchorsPEM of the values
	Version     string

	mu              sync.Mutex
	values, anchors file
	good            *Settings
	rejected        *prometheus.CounterVec
}

// file is what is known of one file.
type file struct {
	raw []byte // content that was last looked at
	// looked: raw was judged, and why says what is wrong with it, if anything.
	looked bool
	why    string
}

// Measure registers the metrics.
func (s *Source) Measure(reg prometheus.Registerer) {
	s.rejected = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "weft_injector_settings_rejected_total",
		Help: "Times that a settings file became unusable, so that its former content stayed in use; file is values or anchors.",
	}, []string{"file"})
	// A series that begins at its first event hides it from rate().
	s.rejected.WithLabelValues("values")
	s.rejected.WithLabelValues("anchors")
	reg.MustRegister(s.rejected, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "weft_injector_settings_stale",
		Help: "1 while the values or the trust anchors in use are not what their file has, since that is unusable.",
	}, s.stale))
}

func (s *Source) stale() float64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.values.why != "" || s.anchors.why != "" {
		return 1
	}
	return 0
}

// Get gives the settings. It fails only as long as no usable ones were ever read.
func (s *Source) Get() (*Settings, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := &Settings{}
	if s.good != nil {
		*next = *s.good
	}
	changed := false
	err := s.values.look(s, "values", s.Path, func(content []byte) error {
		v, err := values.Parse(content, s.Version)
		if err != nil {
			return err
		}
		if s.AnchorsPath == "" {
			if err := checkAnchors([]byte(v.IdentityTrustAnchorsPEM)); err != nil {
				return err
			}
			next.Anchors = v.IdentityTrustAnchorsPEM
		}
		next.Values, changed = v, true
		return nil
	})
	if s.AnchorsPath != "" {
		err = errors.Join(err, s.anchors.look(s, "anchors", s.AnchorsPath, func(content []byte) error {
			if err := checkAnchors(content); err != nil {
				return err
			}
			next.Anchors, changed = string(content), true
			return nil
		}))
	}
	if s.good == nil && err != nil {
		s.values, s.anchors = file{}, file{} // nothing was kept of a half
		return nil, err
	}
	if changed {
		if s.good != nil {
			slog.Info("settings changed")
		}
		s.good = next
	}
	return s.good, nil
}

// look hands the content to use if it is new. The error is that of the present
// content, new or not; it is logged and counted once.
func (f *file) look(s *Source, name, path string, use func([]byte) error) error {
	content, err := readFile(path)
	why := ""
	switch {
	case err != nil:
		why = err.Error()
		f.looked = false
	case f.looked && bytes.Equal(content, f.raw):
		why = f.why
	default:
		f.raw, f.looked = content, true
		if err := use(content); err != nil {
			why = err.Error()
		}
	}
	news := why != f.why
	f.why = why
	if why == "" {
		return nil
	}
	err = fmt.Errorf("reading the %s: %s", name, why)
	if news && s.good != nil {
		slog.Error("settings file is not usable, its former content stays in use", slog.String("file", name), obs.Error(err))
		if s.rejected != nil {
			s.rejected.WithLabelValues(name).Inc()
		}
	}
	return err
}

// checkAnchors wants one certificate at least; whoever verifies with the bundle
// passes over what is none.
func checkAnchors(bundle []byte) error {
	for rest := bundle; ; {
		var block *pem.Block
		block, rest = pem.Decode(rest)
		if block == nil {
			return errors.New("there is no certificate among the trust anchors: give them in a file, or as identityTrustAnchorsPEM in the values")
		}
		if _, err := x509.ParseCertificate(block.Bytes); err == nil && block.Type == "CERTIFICATE" {
			return nil
		}
	}
}

func readFile(path string) ([]byte, error) {
	if path == "" {
		return nil, nil
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	content, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, err
	}
	if len(content) > maxFile {
		return nil, fmt.Errorf("%s is larger than %d bytes", path, maxFile)
	}
	return content, nil
}
