// Package image writes container images out of static binaries, without a
// container engine: one layer from nothing, in an archive that both containerd
// and Docker load. The same input gives the same bytes.
package image

import (
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// Spec says what an image holds.
type Spec struct {
	// Name is the whole reference: registry, name and tag.
	Name string
	// Entrypoint is the command; its first word is a path in the image.
	Entrypoint []string
	// User is who runs it, "uid" or "uid:gid"; empty means root.
	User  string
	Files []File
	// Links are symbolic links: the path of each, and what it points at.
	Links map[string]string
	// CA adds the machine's certificate authorities at the usual place.
	CA bool
}

// File is one file of an image.
type File struct {
	Path   string // in the image, absolute
	Source string // a file on the machine; Data if empty
	Data   []byte
	Mode   int64 // 0 means 0755
	// Capabilities are those that whoever runs the file may raise, as far as its
	// container allows them; a mask of bits 0 to 31 as capability.h numbers them.
	Capabilities uint32
}

// Write writes the archive to a file, whole or not at all.
func Write(file string, s Spec) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil { //nolint:gosec // images are no secret
		return fmt.Errorf("making a directory for images: %w", err)
	}
	f, err := os.CreateTemp(filepath.Dir(file), ".image-*")
	if err != nil {
		return fmt.Errorf("making image %s: %w", s.Name, err)
	}
	err = errors.Join(Encode(f, s), f.Chmod(0o644), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), file)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("making image %s: %w", s.Name, err), os.Remove(f.Name()))
	}
	return nil
}

func (s Spec) check() error {
	slash, colon := strings.LastIndex(s.Name, "/"), strings.LastIndex(s.Name, ":")
	if slash < 1 || colon < slash+2 || colon == len(s.Name)-1 {
		return fmt.Errorf("%q is no whole reference like registry/name:tag", s.Name)
	}
	if len(s.Entrypoint) == 0 {
		return errors.New("an image needs an entrypoint")
	}
	_, linked := s.Links[s.Entrypoint[0]]
	if !linked && !slices.ContainsFunc(s.Files, func(f File) bool { return f.Path == s.Entrypoint[0] }) {
		return fmt.Errorf("the entrypoint %s is no file of the image", s.Entrypoint[0])
	}
	seen := map[string]bool{}
	for _, f := range s.Files {
		seen[f.Path] = true
	}
	for p := range s.Links {
		seen[p] = true
	}
	if len(seen) != len(s.Files)+len(s.Links) {
		return errors.New("a path is in the image twice")
	}
	for p := range seen {
		if !path.IsAbs(p) || path.Clean(p) != p || p == "/" {
			return fmt.Errorf("%q is no clean absolute path", p)
		}
	}
	return nil
}
