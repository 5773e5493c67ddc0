// Package image writes container images out of static binaries, without a
// container engine: one layer from nothing, in an archive that both containerd
// and Docker load. The same input gives the same bytes.
package image

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"path/filepath"
	"runtime"
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
}

// caBundles is where distributions keep their authorities; the first is Debian's
// and is the path in the image, too.
var caBundles = []string{
	"/etc/ssl/certs/ca-certificates.crt",
	"/etc/pki/tls/certs/ca-bundle.crt",
	"/etc/ssl/cert.pem",
}

// passwd names the users of our images, since some programs look themselves up.
const passwd = `root:x:0:0:root:/:/sbin/nologin
linkerd:x:2102:2102:proxy:/:/sbin/nologin
controller:x:2103:2103:controller:/:/sbin/nologin
nobody:x:65534:65534:nobody:/:/sbin/nologin
`

// Write writes the archive to a file, whole or not at all.
func Write(file string, s Spec) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil { //nolint:gosec // images are no secret
		return fmt.Errorf("making a directory for images: %w", err)
	}
	f, err := os.CreateTemp(filepath.Dir(file), ".image-*")
	if err != nil {
		return fmt.Errorf("making image %s: %w", s.Name, err)
	}
	err = errors.Join(Encode(f, s), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), file)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("making image %s: %w", s.Name, err), os.Remove(f.Name()))
	}
	return nil
}

// Encode writes the archive.
func Encode(w io.Writer, s Spec) error {
	if err := s.check(); err != nil {
		return err
	}
	layer, err := s.layer()
	if err != nil {
		return err
	}
	config := encode(map[string]any{
		"architecture": runtime.GOARCH,
		"os":           "linux",
		"created":      "1970-01-01T00:00:00Z",
		"config":       map[string]any{"Entrypoint": s.Entrypoint, "User": s.User, "Env": []string{"PATH=/"}, "WorkingDir": "/"},
		"rootfs":       map[string]any{"type": "layers", "diff_ids": []string{digest(layer)}},
	})
	manifest := encode(map[string]any{
		"schemaVersion": 2,
		"mediaType":     manifestType,
		"config":        descriptor("application/vnd.oci.image.config.v1+json", config),
		"layers":        []any{descriptor("application/vnd.oci.image.layer.v1.tar", layer)},
	})
	entry := descriptor(manifestType, manifest)
	entry["platform"] = map[string]any{"architecture": runtime.GOARCH, "os": "linux"}
	entry["annotations"] = map[string]string{
		"io.containerd.image.name":          s.Name,
		"org.opencontainers.image.ref.name": s.Name[strings.LastIndex(s.Name, ":")+1:],
	}
	index := encode(map[string]any{"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": []any{entry}})
	// What `docker load` of before version 25 reads, in the same archive.
	docker := encode([]any{map[string]any{"Config": blob(config), "RepoTags": []string{s.Name}, "Layers": []string{blob(layer)}}})

	t := tar.NewWriter(w)
	for _, f := range []struct {
		name string
		data []byte
	}{
		{"oci-layout", []byte(`{"imageLayoutVersion":"1.0.0"}`)},
		{"index.json", index},
		{"manifest.json", docker},
		{blob(manifest), manifest},
		{blob(config), config},
		{blob(layer), layer},
	} {
		if err := put(t, tar.Header{Name: f.name, Mode: 0o644}, f.data); err != nil {
			return err
		}
	}
	if err := t.Close(); err != nil {
		return fmt.Errorf("ending the archive: %w", err)
	}
	return nil
}

const manifestType = "application/vnd.oci.image.manifest.v1+json"

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

// layer is the tar of the root file system, with every directory before what is
// in it.
func (s Spec) layer() ([]byte, error) {
	files := slices.Clone(s.Files)
	files = append(files, File{Path: "/etc/passwd", Data: []byte(passwd), Mode: 0o644})
	if s.CA {
		bundle, err := caBundle()
		if err != nil {
			return nil, err
		}
		files = append(files, File{Path: caBundles[0], Data: bundle, Mode: 0o644})
	}
	entries := map[string]entry{"/tmp": {tar.Header{Typeflag: tar.TypeDir, Mode: 0o1777}, nil}}
	add := func(at string, e entry) {
		entries[at] = e
		for dir := path.Dir(at); dir != "/"; dir = path.Dir(dir) {
			if _, ok := entries[dir]; !ok {
				entries[dir] = entry{tar.Header{Typeflag: tar.TypeDir, Mode: 0o755}, nil}
			}
		}
	}
	for _, f := range files {
		data, err := f.read()
		if err != nil {
			return nil, err
		}
		mode := f.Mode
		if mode == 0 {
			mode = 0o755
		}
		add(f.Path, entry{tar.Header{Typeflag: tar.TypeReg, Mode: mode}, data})
	}
	for at, to := range s.Links {
		add(at, entry{tar.Header{Typeflag: tar.TypeSymlink, Linkname: to, Mode: 0o777}, nil})
	}
	var out bytes.Buffer
	t := tar.NewWriter(&out)
	for _, at := range slices.Sorted(maps.Keys(entries)) {
		e := entries[at]
		e.header.Name = strings.TrimPrefix(at, "/")
		if e.header.Typeflag == tar.TypeDir {
			e.header.Name += "/"
		}
		if err := put(t, e.header, e.data); err != nil {
			return nil, err
		}
	}
	if err := t.Close(); err != nil {
		return nil, fmt.Errorf("ending the layer: %w", err)
	}
	return out.Bytes(), nil
}

type entry struct {
	header tar.Header
	data   []byte
}

// read returns the file's bytes. A binary must be static: there is no loader in
// the image.
func (f File) read() ([]byte, error) {
	if f.Source == "" {
		return f.Data, nil
	}
	data, err := os.ReadFile(f.Source)
	if err != nil {
		return nil, fmt.Errorf("reading %s for the image: %w", f.Path, err)
	}
	bin, err := elf.NewFile(bytes.NewReader(data))
	if err != nil {
		return data, nil //nolint:nilerr // no binary: a script or a text
	}
	if slices.ContainsFunc(bin.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP }) {
		return nil, fmt.Errorf("%s needs a loader that the image doesn't have (build it with CGO_ENABLED=0)", f.Source)
	}
	return data, nil
}

func caBundle() ([]byte, error) {
	for _, at := range caBundles {
		if data, err := os.ReadFile(at); err == nil {
			return data, nil
		}
	}
	return nil, fmt.Errorf("finding certificate authorities: none of %s is there (install ca-certificates)", strings.Join(caBundles, ", "))
}

func put(t *tar.Writer, h tar.Header, data []byte) error {
	h.Size, h.Format = int64(len(data)), tar.FormatUSTAR
	if err := t.WriteHeader(&h); err != nil {
		return fmt.Errorf("writing %s: %w", h.Name, err)
	}
	if _, err := t.Write(data); err != nil {
		return fmt.Errorf("writing %s: %w", h.Name, err)
	}
	return nil
}

func digest(data []byte) string {
	sum := sha256.Sum256(data)
	return "sha256:" + hex.EncodeToString(sum[:])
}

func blob(data []byte) string { return "blobs/" + strings.Replace(digest(data), ":", "/", 1) }

func descriptor(kind string, data []byte) map[string]any {
	return map[string]any{"mediaType": kind, "digest": digest(data), "size": len(data)}
}

// encode is for maps of strings and numbers, which always have a JSON form; its
// keys are sorted.
func encode(v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return data
}
