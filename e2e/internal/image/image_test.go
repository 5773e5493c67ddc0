package image

import (
	"archive/tar"
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func spec() Spec {
	return Spec{
		Name:       "weft.local/tool:dev",
		Entrypoint: []string{"/usr/lib/tool", "-v"},
		User:       "65534:65534",
		Files:      []File{{Path: "/usr/lib/tool", Data: []byte("tool")}, {Path: "/etc/tool.conf", Data: []byte("x"), Mode: 0o640}},
		Links:      map[string]string{"/bin/sleep": "/usr/lib/tool"},
	}
}

func TestEncode(t *testing.T) {
	archive := read(t, encodeTo(t, spec()))
	var got strings.Builder
	for _, f := range archive {
		if strings.HasPrefix(f.Name, "blobs/") {
			continue
		}
		fmt.Fprintf(&got, "%s\n", f.Name)
	}
	if want := "oci-layout\nindex.json\nmanifest.json\n"; got.String() != want {
		t.Errorf("the archive begins with %q, want %q", got.String(), want)
	}

	var index struct {
		Manifests []struct {
			Digest      string
			Annotations map[string]string
		}
	}
	unmarshal(t, find(t, archive, "index.json"), &index)
	if got := index.Manifests[0].Annotations["io.containerd.image.name"]; got != "weft.local/tool:dev" {
		t.Errorf("containerd would call it %q", got)
	}
	var manifest struct {
		Config struct{ Digest string }
		Layers []struct{ Digest string }
	}
	unmarshal(t, find(t, archive, blobOf(index.Manifests[0].Digest)), &manifest)
	var config struct {
		Architecture string
		Config       struct {
			Entrypoint []string
			User       string
		}
		RootFS struct {
			DiffIDs []string `json:"diff_ids"`
		}
	}
	unmarshal(t, find(t, archive, blobOf(manifest.Config.Digest)), &config)
	if diff := cmp.Diff([]string{"/usr/lib/tool", "-v"}, config.Config.Entrypoint); diff != "" {
		t.Error(diff)
	}
	if config.Config.User != "65534:65534" || config.Architecture != runtime.GOARCH {
		t.Errorf("config is %+v", config)
	}
	if config.RootFS.DiffIDs[0] != manifest.Layers[0].Digest {
		t.Error("the layer is not the one that the config names")
	}
	var docker []struct{ RepoTags, Layers []string }
	unmarshal(t, find(t, archive, "manifest.json"), &docker)
	if docker[0].RepoTags[0] != "weft.local/tool:dev" || docker[0].Layers[0] != blobOf(manifest.Layers[0].Digest) {
		t.Errorf("docker load reads %+v", docker)
	}

	var tree strings.Builder
	for _, f := range read(t, find(t, archive, blobOf(manifest.Layers[0].Digest))) {
		fmt.Fprintf(&tree, "%s %04o %c %s %d\n", f.Name, f.Mode, f.Typeflag, f.Linkname, f.Size)
	}
	want := `bin/ 0755 5  0
bin/sleep 0777 2 /usr/lib/tool 0
etc/ 0755 5  0
etc/passwd 0644 0  168
etc/tool.conf 0640 0  1
tmp/ 1777 5  0
usr/ 0755 5  0
usr/lib/ 0755 5  0
usr/lib/tool 0755 0  4
`
	if diff := cmp.Diff(want, tree.String()); diff != "" {
		t.Errorf("the root file system (-want +got):\n%s", diff)
	}
}

func TestEncodeIsDeterministic(t *testing.T) {
	first := encodeTo(t, spec())
	for range 5 {
		if !bytes.Equal(first, encodeTo(t, spec())) {
			t.Fatal("the same image has other bytes")
		}
	}
}

func TestCheck(t *testing.T) {
	for name, spoil := range map[string]func(*Spec){
		"no registry":          func(s *Spec) { s.Name = "tool:dev" },
		"no tag":               func(s *Spec) { s.Name = "weft.local/tool" },
		"a port but no tag":    func(s *Spec) { s.Name = "weft.local:5000/tool" },
		"no entrypoint":        func(s *Spec) { s.Entrypoint = nil },
		"a foreign entrypoint": func(s *Spec) { s.Entrypoint = []string{"/bin/sh"} },
		"a path twice":         func(s *Spec) { s.Files = append(s.Files, s.Files[0]) },
		"a relative path":      func(s *Spec) { s.Files[1].Path = "etc/tool.conf" },
		"a way out":            func(s *Spec) { s.Files[1].Path = "/../tool.conf" },
		"no such file":         func(s *Spec) { s.Files[0].Source = "/nowhere" },
	} {
		t.Run(name, func(t *testing.T) {
			s := spec()
			spoil(&s)
			if err := Encode(io.Discard, s); err == nil {
				t.Error("no error")
			}
		})
	}
}

// TestWriteLeavesNothingHalf: a failed image is no file.
func TestWriteLeavesNothingHalf(t *testing.T) {
	dir := t.TempDir()
	s := spec()
	s.Files[0].Source = "/nowhere"
	if err := Write(filepath.Join(dir, "tool.tar"), s); err == nil {
		t.Error("no error")
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("%v is left, %v", left, err)
	}
}

// TestDynamicBinary: one that needs a loader would only fail in the pod.
func TestDynamicBinary(t *testing.T) {
	sh, err := exec.LookPath("sh")
	if err != nil {
		t.Skip("no shell here, which is the dynamic binary of this test: ", err)
	}
	s := spec()
	s.Files[0].Source = sh
	switch err := Encode(io.Discard, s); {
	case err == nil:
		t.Skip("the shell of this machine is static, so it is no example")
	case !strings.Contains(err.Error(), "CGO_ENABLED=0"):
		t.Error(err)
	}
}

// TestProducts: each binary's package is in the tree, and each image is sound.
func TestProducts(t *testing.T) {
	root := filepath.Join("..", "..", "..")
	static := t.TempDir()
	for _, p := range products {
		for _, dir := range p.binaries {
			if _, err := os.Stat(filepath.Join(root, dir)); err != nil {
				t.Errorf("image %s: %v", p.name, err)
			}
			if err := os.WriteFile(filepath.Join(static, filepath.Base(dir)), []byte("binary"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, p := range products {
		s := p.spec(static)
		s.Name, s.CA = "weft.local/"+p.name+":dev", false // not every machine has authorities
		if err := Encode(io.Discard, s); err != nil {
			t.Errorf("image %s: %v", p.name, err)
		}
		if _, err := os.Stat(filepath.Join(root, "deploy", "images", p.dockerfile())); err != nil {
			t.Errorf("image %s has no Dockerfile: %v", p.name, err)
		}
	}
}

// TestProxyInitMayRaiseNetAdmin: the kernel reads the attribute as
// struct vfs_cap_data of linux/capability.h.
func TestProxyInitMayRaiseNetAdmin(t *testing.T) {
	static := t.TempDir()
	for _, name := range []string{"weft-proxy", "weft-init"} {
		if err := os.WriteFile(filepath.Join(static, name), []byte("binary"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	raw, err := proxySpec(static).layer()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for r := tar.NewReader(bytes.NewReader(raw)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if v, ok := h.PAXRecords["SCHILY.xattr.security.capability"]; ok {
			got[h.Name] = hex.EncodeToString([]byte(v))
		}
	}
	want := map[string]string{"usr/lib/linkerd/linkerd2-proxy-init": "0000000200100000" + strings.Repeat("00", 12)}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("files with capabilities (-want +got):\n%s", d)
	}
}

// dockerfile is the one in deploy/images that makes the same image.
func (p product) dockerfile() string {
	if slices.Equal(p.binaries, []string{"services/" + p.name}) {
		return "service.Dockerfile"
	}
	return p.name + ".Dockerfile"
}

func TestChoose(t *testing.T) {
	if _, err := (Order{Only: []string{"proxy", "nats"}}).choose(); err != nil {
		t.Error(err)
	}
	if _, err := (Order{Only: []string{"prxy"}}).choose(); err == nil {
		t.Error("an image that doesn't exist was chosen")
	}
}

type member struct {
	tar.Header
	data []byte
}

func encodeTo(t *testing.T, s Spec) []byte {
	t.Helper()
	var out bytes.Buffer
	if err := Encode(&out, s); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func read(t *testing.T, archive []byte) []member {
	t.Helper()
	var out []member
	r := tar.NewReader(bytes.NewReader(archive))
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, member{*h, data})
	}
}

func find(t *testing.T, archive []member, name string) []byte {
	t.Helper()
	for _, m := range archive {
		if m.Name == name {
			return m.data
		}
	}
	t.Fatalf("the archive has no %s", name)
	return nil
}

func blobOf(digest string) string { return "blobs/" + strings.Replace(digest, ":", "/", 1) }

func unmarshal(t *testing.T, data []byte, v any) {
	t.Helper()
	if err := json.Unmarshal(data, v); err != nil {
		t.Fatalf("%v in %s", err, data)
	}
}
