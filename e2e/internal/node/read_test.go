package node

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weftmesh/weft/services/kit/say"
)

const mountsV1 = `31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct
34 31 0:31 / /sys/fs/cgroup/cpuset rw,relatime - cgroup cgroup rw,cpuset
35 31 0:32 /docker/abc /sys/fs/cgroup/memory rw,relatime shared:7 - cgroup cgroup rw,memory
36 31 0:33 / /sys/fs/cgroup/devices rw,relatime - cgroup cgroup rw,devices
37 31 0:34 / /sys/fs/cgroup/freezer rw,relatime - cgroup cgroup rw,freezer
38 31 0:35 / /sys/fs/cgroup/blkio rw,relatime - cgroup cgroup rw,blkio
39 31 0:36 / /sys/fs/cgroup/pids rw,relatime - cgroup cgroup rw,pids
40 31 0:37 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,name=systemd
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
`

const groupsV1 = `9:name=systemd:/
8:pids:/
7:blkio:/
6:freezer:/user
5:devices:/
4:memory:/docker/abc/task
3:cpuset:/
2:cpu,cpuacct:/
1:rdma:/
0::/
`

// TestHierarchies: some trees are mounted together, some not at all, and a
// container sees a part of one.
func TestHierarchies(t *testing.T) {
	got, err := hierarchies(groupsV1, mountsV1)
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, h := range got {
		lines = append(lines, h.controllers+" "+h.mount+" "+h.own)
	}
	want := []string{
		"name=systemd /sys/fs/cgroup/systemd .",
		"pids /sys/fs/cgroup/pids .",
		"blkio /sys/fs/cgroup/blkio .",
		"freezer /sys/fs/cgroup/freezer user",
		"devices /sys/fs/cgroup/devices .",
		"memory /sys/fs/cgroup/memory task",
		"cpuset /sys/fs/cgroup/cpuset .",
		"cpu,cpuacct /sys/fs/cgroup/cpu,cpuacct .",
	}
	if diff := cmp.Diff(want, lines); diff != "" {
		t.Errorf("hierarchies (-want +got):\n%s", diff)
	}
}

// TestHierarchiesOfVersion2: a person is told what is missing and what to do.
func TestHierarchiesOfVersion2(t *testing.T) {
	_, err := hierarchies("0::/user.slice\n", "31 23 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate\n")
	var p *say.Problem
	if !errors.As(err, &p) {
		t.Fatalf("got %v, want a problem", err)
	}
	if !strings.Contains(p.Why, "memory") || !strings.Contains(p.Next, "KUBECONFIG") {
		t.Errorf("the problem says %q and %q", p.Why, p.Next)
	}
}

func FuzzHierarchies(f *testing.F) {
	f.Add(groupsV1, mountsV1)
	f.Add("::\n", " - cgroup x\n")
	f.Fuzz(func(t *testing.T, groups, mounts string) {
		trees, err := hierarchies(groups, mounts)
		for _, h := range trees {
			if h.mount == "" || strings.HasPrefix(h.own, "..") {
				t.Errorf("%+v is no place for a group", h)
			}
		}
		if err != nil && trees != nil {
			t.Error("both trees and an error")
		}
	})
}

const routeTable = `Iface	Destination	Gateway 	Flags	RefCnt	Use	Metric	Mask		MTU	Window	IRTT
eth0	00000000	0100000A	0003	0	0	0	00000000	0	0	0
eth0	0000000A	00000000	0001	0	0	0	00FFFFFF	0	0	0
weft6	0000600A	00000000	0001	0	0	0	0000FFFF	0	0	0
`

func TestRoutes(t *testing.T) {
	want := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/24"), netip.MustParsePrefix("10.96.0.0/16")}
	if diff := cmp.Diff(want, routes(routeTable), cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); diff != "" {
		t.Errorf("routes (-want +got):\n%s", diff)
	}
}

func FuzzRoutes(f *testing.F) {
	f.Add(routeTable)
	f.Add("a b c d e f g h")
	f.Fuzz(func(t *testing.T, table string) {
		for _, p := range routes(table) {
			if !p.IsValid() || p.Bits() == 0 {
				t.Errorf("%v is no network", p)
			}
		}
	})
}

// TestRangesAreApart: whatever the numbers, no two networks overlap.
func TestRangesAreApart(t *testing.T) {
	var all []netip.Prefix
	for _, r := range ranges {
		all = append(all, r.Nodes(), r.Nodes6())
		for c := 1; c <= MaxClusters; c++ {
			all = append(all, r.AllPods(c), r.Services(c), r.AllPods6(c), r.Services6(c))
			for n := 1; n <= MaxNodes; n++ {
				if !r.AllPods(c).Contains(r.Pods(c, n).Addr()) || !r.Nodes().Contains(r.Node(c, n)) || r.Node(c, n) == r.Machine() ||
					!r.AllPods6(c).Contains(r.Pods6(c, n).Addr()) || !r.Nodes6().Contains(r.Node6(c, n).Addr()) || r.Node6(c, n).Addr() == r.Machine6() {
					t.Errorf("range %d: node %d of cluster %d is out of place", r, n, c)
				}
			}
			if !r.Services(c).Contains(r.Service(c, 10)) {
				t.Errorf("range %d: a service of cluster %d is out of place", r, c)
			}
		}
	}
	if want := 2 * len(ranges) * (1 + 2*MaxClusters); len(all) != want {
		t.Fatalf("%d networks, want %d", len(all), want)
	}
	for i, a := range all {
		if !a.Addr().IsPrivate() {
			t.Errorf("%v is not private", a)
		}
		if j := slices.IndexFunc(all[i+1:], a.Overlaps); j >= 0 {
			t.Errorf("%v and %v overlap", a, all[i+1+j])
		}
	}
}

func TestRangeInUse(t *testing.T) {
	for _, taken := range []string{"10.100.0.0/16", "10.96.0.1/32", "10.0.0.0/8"} {
		if !Range(6).overlaps([]netip.Prefix{netip.MustParsePrefix(taken)}) {
			t.Errorf("%s is in range 6", taken)
		}
	}
	if Range(6).overlaps([]netip.Prefix{netip.MustParsePrefix("10.112.0.0/16"), netip.MustParsePrefix("192.168.0.0/16")}) {
		t.Error("neither is in range 6")
	}
}

func TestArguments(t *testing.T) {
	for line, want := range map[string]string{
		"weft-cluster\x00node\x00/a/c1/n1/node.json\x00":     "node /a/c1/n1/node.json",
		"/bin/x\x00node-init\x00/a/c1/n1/node.json\x00":      "node-init /a/c1/n1/node.json",
		"weft-cluster\x00switch\x00/a/switch\x00":            "switch /a/switch",
		"weft-cluster\x00switch\x00a/switch\x00":             "",
		"weft-cluster\x00up\x00/a\x00":                       "",
		"vi\x00/a/c1/n1/node.json\x00":                       "",
		"":                                                   "",
		"weft-cluster\x00node\x00/a/n1/node.json\x00--x\x00": "",
	} {
		word, path, ok := arguments(line)
		if got := strings.TrimSpace(word + " " + path); ok != (want != "") || ok && got != want {
			t.Errorf("arguments(%q) = %q, %v, want %q", line, got, ok, want)
		}
	}
}
