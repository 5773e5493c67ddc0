package image

import (
	"archive/tar"
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
)

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
		header := tar.Header{Typeflag: tar.TypeReg, Mode: mode}
		if f.Capabilities != 0 {
			header.PAXRecords = map[string]string{"SCHILY.xattr.security.capability": fileCapability(f.Capabilities)}
		}
		add(f.Path, entry{header, data})
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

// fileCapability is the extended attribute security.capability, version 2
// (struct vfs_cap_data of linux/capability.h), without the effective bit: with
// it, a container that allows none of them couldn't even start the file.
func fileCapability(permitted uint32) string {
	value := binary.LittleEndian.AppendUint32(nil, 0x02000000)
	value = binary.LittleEndian.AppendUint32(value, permitted)
	return string(append(value, make([]byte, 12)...)) // inheritable, and bits 32 to 63 of both
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
