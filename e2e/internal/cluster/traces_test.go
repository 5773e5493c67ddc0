package cluster_test

import (
	"context"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weftmesh/weft/e2e/internal/cluster"
	"github.com/weftmesh/weft/e2e/internal/repo"
)

// trace is what a cluster could leave behind on the machine.
type trace map[string]string

// kept are settings of the whole machine that kubelet or kube-proxy would set.
var kept = []string{
	"vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops",
	"kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes",
	"net/ipv4/ip_forward", "net/ipv4/conf/all/rp_filter", "net/ipv4/conf/all/route_localnet",
	"net/netfilter/nf_conntrack_max", "net/netfilter/nf_conntrack_tcp_timeout_established", "net/bridge/bridge-nf-call-iptables",
}

func traces(t *testing.T) trace {
	t.Helper()
	out := trace{}
	for _, name := range kept {
		data, err := os.ReadFile(filepath.Join("/proc/sys", name))
		if err != nil {
			continue // not of this kernel
		}
		out[name] = strings.TrimSpace(string(data))
	}
	names, err := exec.CommandContext(t.Context(), "ip", "netns", "list").Output()
	if err != nil {
		t.Fatal(err)
	}
	out["named network namespaces"] = string(names)
	links, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range links {
		if !strings.HasPrefix(l.Name, "weft") { // other clusters come and go
			out["links"] += l.Name + "\n"
		}
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	out["mounts"] = string(mounts)
	for _, dir := range []string{"/etc/cni", "/opt/cni", "/etc/kubernetes", "/var/lib/kubelet", "/var/log/pods", "/usr/libexec/kubernetes"} {
		_, err := os.Stat(dir)
		out[dir] = map[bool]string{true: "there", false: "not there"}[err == nil]
	}
	return out
}

// groups are those of nodes at the switch whose link it is.
func groups(t *testing.T, link string) []string {
	t.Helper()
	var out []string
	err := filepath.WalkDir("/sys/fs/cgroup", func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() { // a group may go while others are listed
			return nil
		}
		if strings.HasPrefix(d.Name(), link+"-") {
			out = append(out, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// link is the interface of the clusters in a state directory; it is empty if
// there is none yet.
func link(dir string) string {
	number, err := os.ReadFile(filepath.Join(dir, "switch", "range"))
	if err != nil {
		return ""
	}
	return "weft" + string(number)
}

// same fails the test if the machine is not as it was, or anything of the state
// directory, of its interface and of its groups is left.
func (before trace) same(t *testing.T, dir, link string) {
	t.Helper()
	awaitGone(t, link)
	if left := groups(t, link); len(left) > 0 && link != "" {
		t.Errorf("control groups are left: %v", left)
	}
	if diff := cmp.Diff(before, traces(t)); diff != "" {
		t.Errorf("the cluster left traces (-before +after):\n%s", diff)
	}
	if _, err := os.Stat(dir); err == nil {
		t.Errorf("%s is still there", dir)
	}
	procs, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range procs {
		if line, err := os.ReadFile(p); err == nil && strings.Contains(string(line), "\x00"+dir+"/") {
			t.Errorf("a process is left: %q", line)
		}
	}
}

// TestBrokenOff kills the program while it starts a cluster; Down removes what
// it had made, as often as it is called.
func TestBrokenOff(t *testing.T) {
	o := needCluster(t)
	before := traces(t)
	root, err := repo.Root()
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(t.TempDir(), cluster.Program)
	build := exec.CommandContext(t.Context(), "go", "build", "-o", program, "./cmd/"+cluster.Program)
	build.Dir = filepath.Join(root, "e2e")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if said, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	// It is killed at each of its first steps in turn: before, between and after the
	// processes that outlive it.
	for _, sign := range []string{"switch/range", "c1/cluster.json", "c1/n1/cgroups", "c1/n1/log/etcd.log"} {
		cmd := exec.CommandContext(t.Context(), program, "-dir", o.Dir, "-kube", filepath.Join(root, ".bin", "kube"), "up")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		awaitFile(t, filepath.Join(o.Dir, sign))
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait() // it was killed
		ours := link(o.Dir)
		for range 2 {
			if err := cluster.Down(t.Context(), cluster.Options{Dir: o.Dir}); err != nil {
				t.Fatal(err)
			}
		}
		before.same(t, o.Dir, ours)
	}
}

// awaitGone waits for the interface to go: where the program was killed, that is
// the kernel's work, which takes its time.
func awaitGone(t *testing.T, link string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		if _, err := net.InterfaceByName(link); err != nil {
			return
		}
		select {
		case <-ctx.Done():
			t.Errorf("interface %s is left", link)
			return
		case <-tick.C:
		}
	}
}

func awaitFile(t *testing.T, file string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		if _, err := os.Stat(file); err == nil {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("%s was never made", file)
		case <-tick.C:
		}
	}
}
