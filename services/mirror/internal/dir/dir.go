// Package dir writes copies as manifests into a directory that a watcher reads:
// the mirror of a mesh without Kubernetes.
//
// One file holds one mirrored service, under a name that begins with mirror, a
// dot and the other cluster's name; no other file is ever touched. A cluster's
// name has no dot, so clusters a and a-b cannot take each other's files.
package dir

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/weftmesh/weft/services/mirror/internal/derive"
	"github.com/weftmesh/weft/services/mirror/internal/reconcile"
)

// Sink is the directory. It must exist.
type Sink struct {
	Path    string
	Cluster string
}

func (s *Sink) prefix() string { return "mirror." + s.Cluster + "." }

func (s *Sink) file(m derive.Mirror) string {
	return s.prefix() + m.Service.Namespace + "." + m.Service.Name + ".yaml"
}

// Apply makes the directory hold exactly these copies of the cluster. One file
// that cannot be written does not keep the others from it.
func (s *Sink) Apply(ctx context.Context, want []derive.Mirror) (reconcile.Done, error) {
	var (
		done reconcile.Done
		errs []error
	)
	entries, err := os.ReadDir(s.Path)
	if err != nil {
		return done, fmt.Errorf("reading the directory of copies: %w", err)
	}
	wanted := make(map[string]bool, len(want))
	for _, m := range want {
		if ctx.Err() != nil {
			return done, context.Cause(ctx)
		}
		name := s.file(m)
		wanted[name] = true
		if err := s.write(name, m, &done); err != nil {
			errs = append(errs, fmt.Errorf("writing the copy %s: %w", m.Key(), err))
		}
	}
	for _, e := range entries {
		if !s.owns(e) || wanted[e.Name()] {
			continue
		}
		switch err := os.Remove(filepath.Join(s.Path, e.Name())); {
		case err == nil:
			done.Deleted++
		case !errors.Is(err, fs.ErrNotExist):
			errs = append(errs, fmt.Errorf("removing a copy: %w", err))
		}
	}
	return done, errors.Join(errs...)
}

// abandoned is the age at which an unfinished file is nobody's any more: before,
// another mirror of the same cluster may be writing it.
const abandoned = time.Minute

// owns says whether a file is a copy of this cluster's, or was to become one
// when a process died.
func (s *Sink) owns(e fs.DirEntry) bool {
	name := e.Name()
	if strings.HasPrefix(name, "."+s.prefix()) && strings.HasSuffix(name, ".tmp") {
		info, err := e.Info()
		return err == nil && time.Since(info.ModTime()) > abandoned
	}
	return strings.HasPrefix(name, s.prefix()) && strings.HasSuffix(name, ".yaml")
}

func (s *Sink) write(name string, m derive.Mirror, done *reconcile.Done) error {
	content, err := Manifest(m)
	if err != nil {
		return err
	}
	path := filepath.Join(s.Path, name)
	old, err := os.ReadFile(path)
	switch {
	case err == nil && bytes.Equal(old, content):
		return nil
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return err
	}
	there := err == nil
	// A reader sees the old file or the new one, never a part of one. It passes
	// over names that begin with a dot.
	if err := replace(path, content); err != nil {
		return err
	}
	if there {
		done.Updated++
	} else {
		done.Created++
	}
	return nil
}

func replace(path string, content []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*.tmp")
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	err = errors.Join(err, f.Chmod(0o644), f.Sync(), f.Close()) // other processes read it
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name()) // the first error is the one to tell
	}
	return err
}

// Manifest is a copy as YAML documents: the Service, then its slices.
func Manifest(m derive.Mirror) ([]byte, error) {
	var b bytes.Buffer
	source := m.Service.Annotations[derive.AnnotationRemote]
	if derive.IsFederated(m.Service) {
		source = "all clusters that are named"
	}
	fmt.Fprintf(&b, "# Written by weft's mirror; changes are lost. Source: %s\n", source)
	objects := []any{m.Service}
	for _, s := range m.Slices {
		objects = append(objects, s)
	}
	for i, o := range objects {
		if i > 0 {
			b.WriteString("---\n")
		}
		y, err := yaml.Marshal(o)
		if err != nil {
			return nil, fmt.Errorf("writing YAML: %w", err)
		}
		// What the API server would fill in has no place in a manifest.
		for line := range bytes.Lines(y) {
			if t := string(bytes.TrimSpace(line)); t != "status:" && t != "loadBalancer: {}" && t != "creationTimestamp: null" {
				b.Write(line)
			}
		}
	}
	return b.Bytes(), nil
}
