package limits

import (
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
)

func TestReadGolden(t *testing.T) {
	archives, err := txtar.ParseFile("testdata/machines.txtar")
	if err != nil {
		t.Fatal(err)
	}
	// Each machine is a run of files below a directory of its name, ended by
	// its "want" file.
	machine := fstest.MapFS{}
	for _, f := range archives.Files {
		name, file, ok := cutSlash(f.Name)
		if !ok {
			t.Fatalf("%s: want machine/file", f.Name)
		}
		if file != "want" {
			machine[file] = &fstest.MapFile{Data: f.Data}
			continue
		}
		files := machine
		machine = fstest.MapFS{}
		t.Run(name, func(t *testing.T) {
			got := describe(Read(files))
			if diff := cmp.Diff(string(f.Data), got); diff != "" {
				t.Errorf("Read() (-want +got):\n%s", diff)
			}
		})
	}
}

func TestChainStaysBelowItsMount(t *testing.T) {
	tests := []struct {
		name  string
		group string
		m     mount
		want  []string
	}{
		{"own namespace", "/", mount{root: "/", dir: "sys/fs/cgroup"}, []string{"sys/fs/cgroup"}},
		{
			"nested", "/a/b",
			mount{root: "/", dir: "sys/fs/cgroup"},
			[]string{"sys/fs/cgroup/a/b", "sys/fs/cgroup/a", "sys/fs/cgroup"},
		},
		{"mount shows the group itself", "/docker/x", mount{root: "/docker/x", dir: "cg"}, []string{"cg"}},
		{"mount shows a parent", "/docker/x/y", mount{root: "/docker/x", dir: "cg"}, []string{"cg/y", "cg"}},
		{"mount shows another group", "/a", mount{root: "/b", dir: "cg"}, []string{"cg"}},
		{"dots do not climb out", "/../../etc", mount{root: "/", dir: "cg"}, []string{"cg/etc", "cg"}},
		{"no group", "", mount{root: "/", dir: "cg"}, []string{"cg"}},
		{"mounted at the root", "/a", mount{root: "/", dir: "."}, []string{"a", "."}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var got []string
			chain(tt.group, tt.m, func(dir string) { got = append(got, dir) })
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("chain() (-want +got):\n%s", diff)
			}
		})
	}
}

func TestDecide(t *testing.T) {
	const gib = 1 << 30
	tests := []struct {
		name string
		c    Cgroup
		env  Environment
		want Plan
	}{
		{"no limits", Cgroup{}, Environment{Procs: 8}, Plan{}},
		{"memory", Cgroup{Memory: gib}, Environment{Procs: 8}, Plan{Memory: gib / 10 * 9}},
		{"a person's limit wins", Cgroup{Memory: gib, CPUs: 1}, Environment{MemLimit: "off", MaxProcs: "4", Procs: 4}, Plan{}},
		{"runtime already follows", Cgroup{CPUs: 3}, Environment{Procs: 3}, Plan{}},
		{"part of a cpu", Cgroup{CPUs: 0.1}, Environment{Procs: 2}, Plan{Procs: 1}},
		{"rounded up", Cgroup{CPUs: 1.5}, Environment{Procs: 8}, Plan{Procs: 2}},
		{"more than the machine has", Cgroup{CPUs: 64}, Environment{Procs: 8}, Plan{}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := Decide(tt.c, tt.env); got != tt.want {
				t.Errorf("Decide() = %+v, want %+v", got, tt.want)
			}
		})
	}
}

func FuzzRead(f *testing.F) {
	f.Add("0::/a/b\n", "1 2 0:1 / /sys/fs/cgroup rw - cgroup2 cgroup rw\n", "1048576\n", "100000 50000\n")
	f.Add("4:cpu,cpuacct:/a\n", "1 2 0:1 /a /c rw - cgroup cgroup rw,cpu,memory\n", "max", "max 100000")
	f.Fuzz(func(t *testing.T, groups, mounts, memory, cpu string) {
		got := Read(fstest.MapFS{
			"proc/self/cgroup":              {Data: []byte(groups)},
			"proc/self/mountinfo":           {Data: []byte(mounts)},
			"sys/fs/cgroup/memory.max":      {Data: []byte(memory)},
			"sys/fs/cgroup/cpu.max":         {Data: []byte(cpu)},
			"c/memory.limit_in_bytes":       {Data: []byte(memory)},
			"c/cpu.cfs_quota_us":            {Data: []byte(cpu)},
			"c/cpu.cfs_period_us":           {Data: []byte(memory)},
			"sys/fs/cgroup/a/memory.max":    {Data: []byte(cpu)},
			"sys/fs/cgroup/a/b/cpu.max":     {Data: []byte(memory)},
			"sys/fs/cgroup/a/b/memory.high": {Data: []byte(memory)},
		})
		if got.Memory < 0 || got.CPUs < 0 {
			t.Errorf("Read() = %+v, below zero", got)
		}
		if p := Decide(got, Environment{Procs: 4}); p.Memory < 0 || p.Procs < 0 || p.Procs > 4 {
			t.Errorf("Decide(%+v) = %+v", got, p)
		}
	})
}
