package node

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/weftmesh/weft/services/kit/say"
)

// hierarchy is a control group tree of version 1, as the calling process sees it.
type hierarchy struct {
	controllers string // "cpu,cpuacct", or "name=systemd"
	mount       string // where the tree is mounted
	own         string // the caller's group in it, below mount
}

// needed are the controllers without which kubelet doesn't start a pod.
var needed = []string{"cpu", "cpuacct", "cpuset", "memory", "devices", "freezer", "blkio", "pids"}

// hierarchies reads /proc/self/cgroup and /proc/self/mountinfo. A machine whose
// controllers are bound to version 2 is a say.Problem: a nested group there
// needs a delegation that this package doesn't make.
func hierarchies(cgroup, mountinfo string) ([]hierarchy, error) {
	var out []hierarchy
	missing := slices.Clone(needed)
	for line := range strings.Lines(cgroup) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 || parts[1] == "" { // version 2 has an empty name
			continue
		}
		mount, own, ok := mounted(mountinfo, parts[1], parts[2])
		if !ok {
			continue
		}
		out = append(out, hierarchy{parts[1], mount, own})
		missing = slices.DeleteFunc(missing, func(c string) bool { return slices.Contains(strings.Split(parts[1], ","), c) })
	}
	if len(missing) > 0 {
		return nil, &say.Problem{
			What: "this machine cannot hold a test cluster's node",
			Why:  "the control group controllers " + strings.Join(missing, ", ") + " are not mounted as version 1; a node nests its groups in version 1 only",
			Next: "run the tests against another cluster by KUBECONFIG (kind works on version 2), or boot with systemd.unified_cgroup_hierarchy=0",
		}
	}
	return out, nil
}

// mounted finds the mount of a hierarchy, and the group's path below it.
func mounted(mountinfo, controllers, group string) (mount, own string, ok bool) {
	for line := range strings.Lines(mountinfo) {
		left, right, found := strings.Cut(line, " - ")
		from, kind := strings.Fields(left), strings.Fields(right)
		if !found || len(from) < 5 || len(kind) < 3 || kind[0] != "cgroup" {
			continue
		}
		options := strings.Split(kind[2], ",")
		if slices.ContainsFunc(strings.Split(controllers, ","), func(c string) bool { return !slices.Contains(options, c) }) {
			continue
		}
		below, err := filepath.Rel(from[3], group) // a container mounts a part of the tree
		if err != nil || strings.HasPrefix(below, "..") {
			continue
		}
		return from[4], below, true
	}
	return "", "", false
}

func ownHierarchies() ([]hierarchy, error) {
	cgroup, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil, fmt.Errorf("reading control groups: %w", err)
	}
	mountinfo, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("reading mounts: %w", err)
	}
	return hierarchies(string(cgroup), string(mountinfo))
}

// weight is a node's share of the processors where others want them too: a group has
// 1024 by default, as a single session of a shell has, and on a machine that compiles
// in thirty of them a node with a hundred processes would get a thirtieth.
const weight = 16 << 10

// enclose makes a group below the caller's own in every hierarchy and puts the
// process into it. What it will make is written down first, for removeGroups.
func enclose(c Config, pid int) error {
	trees, err := ownHierarchies()
	if err != nil {
		return err
	}
	var groups []string
	for _, h := range trees {
		groups = append(groups, filepath.Join(h.mount, h.own, c.Group))
	}
	if err := os.WriteFile(c.path(groupsFile), []byte(strings.Join(groups, "\n")), 0o600); err != nil {
		return fmt.Errorf("noting a node's control groups: %w", err)
	}
	for i, group := range groups {
		controllers := strings.Split(trees[i].controllers, ",")
		if err := os.Mkdir(group, 0o755); err != nil && !errors.Is(err, fs.ErrExist) { //nolint:gosec // the kernel's usual mode
			return fmt.Errorf("making a node's control group: %w", err)
		}
		if slices.Contains(controllers, "cpu") {
			if err := os.WriteFile(filepath.Join(group, "cpu.shares"), fmt.Append(nil, weight), 0o600); err != nil {
				return fmt.Errorf("weighing a node: %w", err)
			}
		}
		if slices.Contains(controllers, "cpuset") { // a new one is empty and takes no process
			for _, name := range []string{"cpuset.cpus", "cpuset.mems"} {
				if err := inherit(group, name); err != nil {
					return err
				}
			}
		}
		if err := os.WriteFile(filepath.Join(group, "cgroup.procs"), fmt.Append(nil, pid), 0o600); err != nil {
			return fmt.Errorf("moving a node into its control group %s: %w", group, err)
		}
	}
	return nil
}

func inherit(group, name string) error {
	data, err := os.ReadFile(filepath.Join(filepath.Dir(group), name))
	if err != nil {
		return fmt.Errorf("reading the parent's %s: %w", name, err)
	}
	if err := os.WriteFile(filepath.Join(group, name), data, 0o600); err != nil {
		return fmt.Errorf("setting %s: %w", name, err)
	}
	return nil
}

// removeGroups removes what enclose made for the node in dir, once its processes
// are gone.
func removeGroups(dir string) error {
	data, err := os.ReadFile(filepath.Join(dir, groupsFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading a node's control groups: %w", err)
	}
	var errs []error
	for group := range strings.FieldsSeq(string(data)) {
		errs = append(errs, removeTree(group))
	}
	return errors.Join(errs...)
}

// removeTree removes a group from its leaves on: the files in it are the
// kernel's and go with it.
func removeTree(group string) error {
	entries, err := os.ReadDir(group)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("removing a control group: %w", err)
	}
	for _, e := range entries {
		if e.IsDir() {
			if err := removeTree(filepath.Join(group, e.Name())); err != nil {
				return err
			}
		}
	}
	if err := os.Remove(group); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing a control group: %w", err)
	}
	return nil
}
