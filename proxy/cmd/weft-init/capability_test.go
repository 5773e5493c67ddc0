package main

import (
	"bytes"
	"encoding/hex"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// fileCapability is what an image's file must carry (README): revision 2,
// cap_net_admin permitted, no effective bit.
const fileCapability = "0000000200100000000000000000000000000000"

// TestFileCapability runs the binary as it is shipped, as an ordinary user in a
// network namespace of its own: with the file's capability it may redirect; with
// none to give, the same file still is a validator.
func TestFileCapability(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("a file's capabilities are root's to give: run this test as root")
	}
	dir := t.TempDir()
	if err := os.Chmod(filepath.Dir(dir), 0o755); err != nil { // for the ordinary user
		t.Fatal(err)
	}
	path := filepath.Join(dir, "weft-init")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", path, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building: %v\n%s", err, out)
	}
	value, err := hex.DecodeString(fileCapability)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Setxattr(path, "security.capability", value, 0); err != nil {
		t.Skipf("%s keeps no capabilities (%v): set TMPDIR to a directory of a file system that does", dir, err)
	}
	nobody := &syscall.Credential{Uid: 65534, Gid: 65534}
	for _, tt := range []struct {
		name, args string
		caps       []uintptr
		code       int
		want       string
	}{
		{"it redirects", "init " + podArgs, []uintptr{unix.CAP_NET_ADMIN}, 0, "is redirected"},
		{"another user of the file", "validate --timeout 1ms --connect-addr 127.0.0.1:9", nil, 95, "not redirected"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), path, strings.Fields(tt.args)...)
			cmd.Dir = "/"
			// A file with capabilities clears the ambient ones: what counts is the file's.
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: nobody, Cloneflags: syscall.CLONE_NEWNET, AmbientCaps: tt.caps}
			var said bytes.Buffer
			cmd.Stdout, cmd.Stderr = &said, &said
			err := cmd.Run()
			if errors.Is(err, syscall.EPERM) {
				t.Skip("this machine allows root no network namespaces: run where CAP_SYS_ADMIN is given")
			}
			if code(err) != tt.code || !strings.Contains(said.String(), tt.want) {
				t.Errorf("exit %d, %v; want %d and %q: %s", code(err), err, tt.code, tt.want, said.String())
			}
		})
	}
}
