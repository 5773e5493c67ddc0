package image

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// docker runs it and returns what it printed.
func docker(t *testing.T, args ...string) []byte {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "docker", args...)
	cmd.Dir = filepath.Join("..", "..", "..")
	cmd.Env = append(os.Environ(), "DOCKER_BUILDKIT=1")
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	if err := cmd.Run(); err != nil {
		t.Fatalf("docker %s: %v\n%s", strings.Join(args, " "), err, said.Bytes())
	}
	return out.Bytes()
}

// TestDockerfiles builds each image a second time, with a container engine, and wants
// the same of it. WEFT_DOCKER=1 runs it; what else it says goes to docker build, as in
// WEFT_DOCKER="--network host".
func TestDockerfiles(t *testing.T) {
	more, ok := os.LookupEnv("WEFT_DOCKER")
	if !ok {
		t.Skip("needs a container engine and the network; WEFT_DOCKER=1 runs it")
	}
	for _, p := range products {
		t.Run(p.name, func(t *testing.T) {
			file, tag := p.name, "weft.test/"+p.name
			args := []string{"build", "-q", "-t", tag}
			if more != "1" {
				args = append(args, strings.Fields(more)...)
			}
			if path.Dir(p.binaries[0]) == "services" {
				file = "service"
				args = append(args, "--build-arg", "SERVICE="+p.name)
			}
			docker(t, append(args, "-f", "deploy/images/"+file+".Dockerfile", ".")...)
			want := p.spec("/static")
			var made []struct {
				Config struct {
					User       string
					Entrypoint []string
				}
			}
			if err := json.Unmarshal(docker(t, "inspect", tag), &made); err != nil {
				t.Fatal(err)
			}
			got := content(t, tag)
			entry := made[0].Config.Entrypoint
			if to, ok := got.links[entry[0]]; ok { // an entrypoint can't hold a build's argument
				delete(got.links, entry[0])
				entry = append([]string{to}, entry[1:]...)
			}
			if d := cmp.Diff(want.Entrypoint, entry) + cmp.Diff(want.User, made[0].Config.User); d != "" {
				t.Errorf("entrypoint and user (-archive +Dockerfile)\n%s", d)
			}
			var files, capable []string
			for _, f := range want.Files {
				files = append(files, f.Path)
				if f.Capabilities != 0 {
					capable = append(capable, f.Path)
				}
			}
			if want.CA {
				files = append(files, "/etc/ssl/certs/ca-certificates.crt")
			}
			slices.Sort(files)
			if d := cmp.Diff(files, got.files) + cmp.Diff(capable, got.capable); d != "" {
				t.Errorf("files, and those that have capabilities (-archive +Dockerfile)\n%s", d)
			}
			if d := cmp.Diff(absolute(want.Links), absolute(got.links)); d != "" {
				t.Errorf("links (-archive +Dockerfile)\n%s", d)
			}
			if !got.tmp {
				t.Error("/tmp is not for everybody")
			}
		})
	}
}

// inside is what an image holds.
type inside struct {
	files, capable []string
	links          map[string]string
	tmp            bool // is there, for everybody
}

// content leaves out what the engine puts into every container.
func content(t *testing.T, tag string) inside {
	t.Helper()
	id := strings.TrimSpace(string(docker(t, "create", tag)))
	defer docker(t, "rm", id)
	got := inside{links: map[string]string{}}
	entries := tar.NewReader(bytes.NewReader(docker(t, "export", id)))
	for {
		h, err := entries.Next()
		if errors.Is(err, io.EOF) {
			slices.Sort(got.files)
			return got
		}
		if err != nil {
			t.Fatal(err)
		}
		at := path.Clean("/" + h.Name)
		switch {
		case at == "/.dockerenv" || strings.HasPrefix(at, "/dev/") || path.Dir(at) == "/etc":
		case h.Typeflag == tar.TypeReg:
			got.files = append(got.files, at)
			if h.PAXRecords["SCHILY.xattr.security.capability"] != "" {
				got.capable = append(got.capable, at)
			}
		case h.Typeflag == tar.TypeSymlink:
			got.links[at] = h.Linkname
		case at == "/tmp":
			got.tmp = h.FileInfo().Mode().Perm() == 0o777
		}
	}
}

// absolute makes links comparable that are written in different ways.
func absolute(links map[string]string) map[string]string {
	out := map[string]string{}
	for at, to := range links {
		if !path.IsAbs(to) {
			to = path.Join(path.Dir(at), to)
		}
		out[at] = to
	}
	return out
}
