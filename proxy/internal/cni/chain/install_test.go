package chain

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weftmesh/weft/proxy/internal/cni/apiserver"
	"github.com/weftmesh/weft/services/kit/say"
)

// node is a node's file system, seen from a pod.
type node struct {
	t   *testing.T
	cfg Config
}

func newNode(t *testing.T, files map[string]string) *node {
	t.Helper()
	n := &node{t: t, cfg: Config{
		Mount: t.TempDir(), NetDir: "/etc/cni/net.d", BinDir: "/opt/cni/bin", Kubeconfig: "ZZZ-kubeconfig", Mode: 0o600,
		Network: `{"type":"linkerd-cni","kubernetes":{"kubeconfig":"__KUBECONFIG_FILEPATH__"}}`,
		Server:  "https://10.0.0.1:443", Every: time.Millisecond,
	}}
	for _, dir := range []string{n.cfg.NetDir, n.cfg.BinDir} {
		if err := os.MkdirAll(filepath.Join(n.cfg.Mount, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, content := range files {
		n.write(name, content)
	}
	n.cfg.Account = t.TempDir()
	n.put(filepath.Join(n.cfg.Account, "token"), "first\n")
	n.put(filepath.Join(n.cfg.Account, "ca.crt"), "a CA")
	n.cfg.Binary = filepath.Join(t.TempDir(), "weft-cni")
	n.put(n.cfg.Binary, "a program")
	return n
}

func (n *node) put(path, content string) {
	n.t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		n.t.Fatal(err)
	}
}

func (n *node) net(name string) string { return filepath.Join(n.cfg.Mount, n.cfg.NetDir, name) }
func (n *node) write(name, content string) {
	n.t.Helper()
	n.put(n.net(name), content)
}

func (n *node) installer() *Installer {
	n.t.Helper()
	i, err := New(n.cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		n.t.Fatal(err)
	}
	return i
}

// confs are the node's configurations: for each, the plugins' types in order, or
// its text if that is no JSON.
func (n *node) confs() map[string]string {
	n.t.Helper()
	names, _, err := configurations(n.net(""))
	if err != nil {
		n.t.Fatal(err)
	}
	out := map[string]string{}
	for _, name := range names {
		b, err := os.ReadFile(n.net(name))
		if err != nil {
			n.t.Fatal(err)
		}
		var c struct {
			Type    string
			Plugins []struct{ Type string }
		}
		if err := json.Unmarshal(b, &c); err != nil {
			out[name] = "broken: " + string(b)
			continue
		}
		types := []string{}
		for _, p := range c.Plugins {
			types = append(types, p.Type)
		}
		out[name] = strings.TrimSpace(c.Type + strings.Join(types, " "))
	}
	return out
}

// all are the names of everything on the node.
func (n *node) all() (out []string) {
	n.t.Helper()
	_ = filepath.WalkDir(n.cfg.Mount, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			out = append(out, strings.TrimPrefix(path, n.cfg.Mount))
		}
		return err
	})
	return out
}

const (
	flannel = `{"name":"cbr0","cniVersion":"0.3.1","plugins":[{"type":"flannel"},{"type":"portmap"}]}`
	single  = `{"cniVersion":"0.3.1","name":"k8s","type":"bridge","isGateway":true}`
)

func TestInstallAndRemove(t *testing.T) {
	n := newNode(t, map[string]string{"10-flannel.conflist": flannel, "87-bridge.conf": single, "README": "no configuration"})
	i := n.installer()
	if err := i.Inspect(); err == nil {
		t.Error("Inspect() finds nothing missing before anything was done")
	}
	for range 3 {
		if err := i.Sync(); err != nil {
			t.Fatal(err)
		}
	}
	want := map[string]string{"10-flannel.conflist": "flannel portmap linkerd-cni", "87-bridge.conflist": "bridge linkerd-cni"}
	if diff := cmp.Diff(want, n.confs()); diff != "" {
		t.Errorf("configurations (-want +got):\n%s", diff)
	}
	if err := i.Inspect(); err != nil {
		t.Errorf("Inspect() = %v", err)
	}
	b, err := os.ReadFile(n.net("10-flannel.conflist"))
	if err != nil || !bytes.Contains(b, []byte(`"/etc/cni/net.d/ZZZ-kubeconfig"`)) {
		t.Errorf("the entry does not name the node's path of the kubeconfig: %s, %v", b, err)
	}
	for path, mode := range map[string]fs.FileMode{n.net("ZZZ-kubeconfig"): 0o600, i.bin(): 0o755, n.net("10-flannel.conflist"): 0o644} {
		if info, err := os.Stat(path); err != nil || info.Mode() != mode {
			t.Errorf("%s: %v, %v; want mode %v", path, info, err, mode)
		}
	}

	if err := i.Remove(); err != nil {
		t.Fatal(err)
	}
	got := n.all()
	if diff := cmp.Diff([]string{"/etc/cni/net.d/10-flannel.conflist", "/etc/cni/net.d/87-bridge.conf", "/etc/cni/net.d/README"}, got); diff != "" {
		t.Errorf("what is left (-want +got):\n%s", diff)
	}
	for name, before := range map[string]string{"10-flannel.conflist": flannel, "87-bridge.conf": single} {
		after, err := os.ReadFile(n.net(name))
		if err != nil || canonical(t, before) != canonical(t, string(after)) {
			t.Errorf("%s is %s, %v; it was %s", name, after, err, before)
		}
	}
	if err := i.Remove(); err != nil {
		t.Errorf("a second Remove() = %v", err)
	}
}

// Others rewrite their configurations, delete our files, and leave half of theirs.
func TestOthersInterfere(t *testing.T) {
	n := newNode(t, nil)
	i := n.installer()
	if err := i.Sync(); !errors.Is(err, errWaiting) {
		t.Errorf("Sync() of a node without a network = %v", err)
	}
	step := func(what string, wantErr string, want map[string]string) {
		t.Helper()
		err := i.Sync()
		if wantErr == "" && err != nil || wantErr != "" && (err == nil || !strings.Contains(err.Error(), wantErr)) {
			t.Errorf("%s: Sync() = %v, want %q", what, err, wantErr)
		}
		if diff := cmp.Diff(want, n.confs()); diff != "" {
			t.Errorf("%s: configurations (-want +got):\n%s", what, diff)
		}
	}
	n.write("10-calico.conflist", flannel)
	step("it appears", "", map[string]string{"10-calico.conflist": "flannel portmap linkerd-cni"})
	n.write("10-calico.conflist", flannel)
	step("its owner rewrites it", "", map[string]string{"10-calico.conflist": "flannel portmap linkerd-cni"})
	n.write("10-calico.conflist", flannel[:40])
	step("its owner has written half of it", "10-calico.conflist: it cannot be read", map[string]string{"10-calico.conflist": "broken: " + flannel[:40]})
	n.write("20-other.conflist", flannel)
	step("a broken one hides no other", "10-calico", map[string]string{"10-calico.conflist": "broken: " + flannel[:40], "20-other.conflist": "flannel portmap linkerd-cni"})
	n.write("10-calico.conflist", flannel)
	if err := os.Remove(i.bin()); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(n.net("ZZZ-kubeconfig")); err != nil {
		t.Fatal(err)
	}
	n.write(".weft-cni-123.tmp", "of a process that died")
	step("all is whole again", "", map[string]string{"10-calico.conflist": "flannel portmap linkerd-cni", "20-other.conflist": "flannel portmap linkerd-cni"})
	if err := i.Inspect(); err != nil {
		t.Errorf("Inspect() = %v", err)
	}
	if _, err := os.Lstat(n.net(".weft-cni-123.tmp")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the temporary file is still there: %v", err)
	}
	// A single configuration that its owner writes again and again.
	for range 2 {
		n.write("05-x.conf", single)
		step("a single one", "", map[string]string{
			"05-x.conflist": "bridge linkerd-cni", "10-calico.conflist": "flannel portmap linkerd-cni", "20-other.conflist": "flannel portmap linkerd-cni",
		})
	}
	// One beside a list that is somebody else's: the list stays theirs.
	n.write("20-other.conf", single)
	step("a single one beside a list", "", map[string]string{
		"05-x.conflist": "bridge linkerd-cni", "10-calico.conflist": "flannel portmap linkerd-cni",
		"20-other.conf.conflist": "bridge linkerd-cni", "20-other.conflist": "flannel portmap linkerd-cni",
	})
	// Its owner upgrades it while we are gone: nothing of theirs is overwritten.
	n.write("05-x.conf", strings.Replace(single, "0.3.1", "1.0.0", 1))
	if err := i.Remove(); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{
		"05-x.conf": "bridge", "10-calico.conflist": "flannel portmap", "20-other.conf": "bridge", "20-other.conflist": "flannel portmap",
	}, n.confs()); diff != "" {
		t.Errorf("after Remove() (-want +got):\n%s", diff)
	}
	if b, _ := os.ReadFile(n.net("05-x.conf")); !bytes.Contains(b, []byte("1.0.0")) {
		t.Errorf("its owner's new version is lost: %s", b)
	}
}

// A broken configuration keeps the binary: another file may name it.
func TestRemoveKeepsWhatIsNamed(t *testing.T) {
	n := newNode(t, map[string]string{"10-x.conflist": flannel})
	i := n.installer()
	if err := i.Sync(); err != nil {
		t.Fatal(err)
	}
	n.write("20-broken.conflist", `{"plugins":[{"type":"linkerd-cni"}`)
	err := i.Remove()
	if _, ok := errors.AsType[*say.Problem](err); !ok {
		t.Errorf("Remove() = %v", err)
	}
	if _, err := os.Stat(i.bin()); err != nil {
		t.Errorf("the binary: %v", err)
	}
	if got := n.confs()["10-x.conflist"]; got != "flannel portmap" {
		t.Errorf("10-x.conflist has %s", got)
	}
}

func TestRewrittenMeanwhile(t *testing.T) {
	n := newNode(t, map[string]string{"10-x.conflist": flannel})
	path := n.net("10-x.conflist")
	before, err := read(path)
	if err != nil {
		t.Fatal(err)
	}
	n.write("10-x.conflist", flannel+"\n")
	if err := replace(path, []byte("{}"), 0o644, before); !errors.Is(err, errRewritten) {
		t.Errorf("replace() = %v", err)
	}
	if b, _ := os.ReadFile(path); string(b) != flannel+"\n" {
		t.Errorf("it holds %s", b)
	}
}

func TestLinksAreNotFollowed(t *testing.T) {
	n := newNode(t, nil)
	n.put(filepath.Join(n.cfg.Mount, "elsewhere"), flannel)
	if err := os.Symlink(filepath.Join(n.cfg.Mount, "elsewhere"), n.net("10-x.conflist")); err != nil {
		t.Fatal(err)
	}
	if err := n.installer().Sync(); !errors.Is(err, errWaiting) {
		t.Errorf("Sync() = %v", err)
	}
	if b, _ := os.ReadFile(filepath.Join(n.cfg.Mount, "elsewhere")); string(b) != flannel {
		t.Errorf("what the link names was changed: %s", b)
	}
}

func TestTokenAndBinaryAreRenewed(t *testing.T) {
	n := newNode(t, map[string]string{"10-x.conflist": flannel})
	i := n.installer()
	for _, token := range []string{"first", "second"} {
		n.put(filepath.Join(n.cfg.Account, "token"), token+"\n")
		n.put(n.cfg.Binary, "the program of "+token)
		if token == "second" {
			i = n.installer() // a new version is a new process
		}
		if err := i.Sync(); err != nil {
			t.Fatal(err)
		}
		want := string(apiserver.Kubeconfig(n.cfg.Server, []byte("a CA"), token))
		if b, err := os.ReadFile(n.net("ZZZ-kubeconfig")); string(b) != want {
			t.Errorf("the kubeconfig is %s, %v; want %s", b, err, want)
		}
		if b, err := os.ReadFile(i.bin()); string(b) != "the program of "+token {
			t.Errorf("the binary is %s, %v", b, err)
		}
	}
}

func TestRun(t *testing.T) {
	n := newNode(t, map[string]string{"10-x.conflist": flannel})
	i := n.installer()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- i.Run(ctx) }()
	probe := n.installer()
	for deadline := time.Now().Add(30 * time.Second); probe.Inspect() != nil; {
		if time.Now().After(deadline) {
			t.Fatalf("Inspect() = %v", probe.Inspect())
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Errorf("Run() = %v", err)
	}
	if diff := cmp.Diff([]string{"/etc/cni/net.d/10-x.conflist"}, n.all()); diff != "" {
		t.Errorf("what is left (-want +got):\n%s", diff)
	}
}

// A problem that stays is told once, not once a second.
func TestProblemsAreToldOnce(t *testing.T) {
	n := newNode(t, map[string]string{"10-x.conflist": flannel, "20-broken.conf": "{"})
	if err := os.RemoveAll(filepath.Join(n.cfg.Mount, n.cfg.BinDir)); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	i, err := New(n.cfg, slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		i.report(i.Sync())
	}
	if err := os.Mkdir(filepath.Join(n.cfg.Mount, n.cfg.BinDir), 0o755); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		i.report(i.Sync())
	}
	if got := strings.Count(log.String(), "level=WARN"); got != 2 || !strings.Contains(log.String(), "20-broken.conf") {
		t.Errorf("%d warnings, want 2:\n%s", got, log.String())
	}
}

func TestNewRefuses(t *testing.T) {
	for _, network := range []string{"", "{", `{"type":"bridge"}`, "[]"} {
		if _, err := New(Config{Network: network}, slog.New(slog.DiscardHandler)); err == nil {
			t.Errorf("New() with %q gave no error", network)
		}
	}
}

func TestInspectLooksAtTheFirst(t *testing.T) {
	n := newNode(t, map[string]string{"10-x.conflist": flannel})
	i := n.installer()
	if err := i.Sync(); err != nil {
		t.Fatal(err)
	}
	n.write("05-new.conflist", flannel)
	if err := i.Inspect(); err == nil || !strings.Contains(fmt.Sprint(err), "05-new.conflist") {
		t.Errorf("Inspect() = %v, want it to name the file that the runtime reads", err)
	}
}
