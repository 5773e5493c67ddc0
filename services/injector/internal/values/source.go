package values

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"sync"

	"github.com/weftmesh/weft/services/kit/obs"
)

// maxFile bounds each file read, in bytes; a ConfigMap holds at most 1 MiB.
const maxFile = 1 << 20

// Settings are what one request is answered with.
type Settings struct {
	Values *Values
	// Anchors is the trust bundle, PEM.
	Anchors string
}

// Source reads the values and the trust anchors for each request, as Linkerd
// does, so that a changed ConfigMap needs no restart. What cannot be used does
// not replace what could.
type Source struct {
	Path        string // empty means the defaults
	AnchorsPath string // empty means identityTrustAnchorsPEM of the values
	Version     string

	mu      sync.Mutex
	raw     [2][]byte // content that was last looked at
	good    *Settings
	lastErr string
}

// Get gives the settings as the files have them now.
func (s *Source) Get() (*Settings, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.refresh()
	if err == nil {
		s.lastErr = ""
		return s.good, nil
	}
	if s.good == nil {
		return nil, err
	}
	// Each request would find the same error again.
	if text := err.Error(); text != s.lastErr {
		s.lastErr = text
		slog.Warn("values are not usable, the former ones stay in use", obs.Error(err))
	}
	return s.good, nil
}

func (s *Source) refresh() error {
	content, err := readFile(s.Path)
	if err != nil {
		return fmt.Errorf("reading values: %w", err)
	}
	anchors, err := readFile(s.AnchorsPath)
	if err != nil {
		return fmt.Errorf("reading the trust anchors: %w", err)
	}
	if s.good != nil && bytes.Equal(content, s.raw[0]) && bytes.Equal(anchors, s.raw[1]) {
		return nil
	}
	v, err := Parse(content, s.Version)
	if err != nil {
		return err
	}
	next := &Settings{Values: v, Anchors: string(anchors)}
	if s.AnchorsPath == "" {
		next.Anchors = v.IdentityTrustAnchorsPEM
	}
	if next.Anchors == "" {
		return errors.New("there are no trust anchors: give a file, or identityTrustAnchorsPEM in the values")
	}
	if s.good != nil {
		slog.Info("values changed")
	}
	s.raw, s.good = [2][]byte{content, anchors}, next
	return nil
}

func readFile(path string) ([]byte, error) {
	if path == "" {
		return nil, nil
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.Size() > maxFile {
		return nil, &fs.PathError{Op: "read", Path: path, Err: fs.ErrInvalid}
	}
	return os.ReadFile(path)
}
