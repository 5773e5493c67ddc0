package link

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/weftmesh/weft/bus"
)

const (
	// suffix marks the files that describe a link; the others are what they name.
	suffix = ".json"
	// maxFile bounds a file; certificates and credentials are a few KiB.
	maxFile = 1 << 20
	// maxLinks bounds what a directory can cost: each link is a copy of a log.
	maxLinks = 256
	// maxName is the longest value of the label that names a cluster.
	maxName = 63
)

// Spec is how a linked cluster's log is read. It is the content of the file
// <cluster>.json; the names of other files are relative to its directory.
type Spec struct {
	// Servers are the other cluster's NATS servers.
	Servers []string `json:"servers"`
	// Cluster is what that bus calls its cluster; the link's name if empty.
	Cluster     string `json:"cluster,omitempty"`
	Credentials string `json:"credentials,omitempty"`
	CA          string `json:"ca,omitempty"`
	Cert        string `json:"cert,omitempty"`
	Key         string `json:"key,omitempty"`
	// TrustDomain is what identities of the other cluster must end in. If empty the
	// other cluster's log is believed.
	TrustDomain string `json:"trustDomain,omitempty"`
}

// spec is one that was read, with a sum of all it was read from: equal sums need
// no new connection.
type spec struct {
	Spec
	sum [sha256.Size]byte
}

// bus is where the log is.
func (s Spec) bus(dir, name string) bus.Config {
	at := func(file string) string {
		if file == "" || filepath.IsAbs(file) {
			return file
		}
		return filepath.Join(dir, file)
	}
	c := bus.Config{
		Servers: s.Servers, Cluster: s.Cluster,
		Credentials: at(s.Credentials), CA: at(s.CA), Cert: at(s.Cert), Key: at(s.Key),
	}
	if c.Cluster == "" {
		c.Cluster = name
	}
	return c
}

// scan reads the directory. A file that can't be read costs its own link only;
// bad has the reason by the link's name.
func scan(dir string) (found map[string]spec, bad map[string]error, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, nil, fmt.Errorf("reading the directory of links: %w", err)
	}
	found, bad = make(map[string]spec), make(map[string]error)
	for _, e := range entries {
		name, ok := strings.CutSuffix(e.Name(), suffix)
		// Kubernetes keeps the versions of a volume beside it, with two dots.
		if !ok || strings.HasPrefix(name, ".") {
			continue
		}
		if len(found)+len(bad) >= maxLinks {
			return found, bad, fmt.Errorf("reading the directory of links: more than %d", maxLinks)
		}
		s, err := read(dir, name)
		if err != nil {
			bad[name] = err
			continue
		}
		found[name] = s
	}
	return found, bad, nil
}

func read(dir, name string) (spec, error) {
	if name == "" || len(name) > maxName {
		return spec{}, fmt.Errorf("the name has %d bytes, want 1 to %d", len(name), maxName)
	}
	body, err := content(filepath.Join(dir, name+suffix))
	if err != nil {
		return spec{}, err
	}
	s, err := Parse(body)
	if err != nil {
		return spec{}, err
	}
	cfg := s.bus(dir, name)
	if err := cfg.Check(); err != nil {
		return spec{}, fmt.Errorf("checking the link: %w", err)
	}
	sum := sha256.New()
	sum.Write(body)
	for _, file := range []string{cfg.Credentials, cfg.CA, cfg.Cert, cfg.Key} {
		sum.Write([]byte{0})
		if file == "" {
			continue
		}
		part, err := content(file)
		if err != nil {
			return spec{}, err
		}
		one := sha256.Sum256(part)
		sum.Write(one[:])
	}
	out := spec{Spec: s}
	sum.Sum(out.sum[:0])
	return out, nil
}

// Parse reads a file that describes a link. A word that it does not know is a
// mistake: a misspelt certificate would be a connection without one.
func Parse(body []byte) (Spec, error) {
	var s Spec
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	if err := d.Decode(&s); err != nil {
		return Spec{}, fmt.Errorf("reading the link: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return Spec{}, errors.New("reading the link: more than one value")
	}
	if len(s.Servers) == 0 {
		return Spec{}, errors.New("reading the link: it has no servers")
	}
	return s, nil
}

func content(file string) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, fmt.Errorf("reading a file of the link: %w", err)
	}
	defer func() { _ = f.Close() }() // it was only read
	body, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, fmt.Errorf("reading a file of the link: %w", err)
	}
	if len(body) > maxFile {
		return nil, fmt.Errorf("reading a file of the link: %s has more than %d bytes", filepath.Base(file), maxFile)
	}
	return body, nil
}
