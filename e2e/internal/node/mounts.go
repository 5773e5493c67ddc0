package node

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// sysctls are settings of the whole machine that kubelet would write: they are
// in no namespace. A node sees files with the wanted values in their place, and
// kubelet's protectKernelDefaults makes it fail, not write, if one is missed.
var sysctls = map[string]string{
	"vm/overcommit_memory":      "1",
	"vm/panic_on_oom":           "0",
	"kernel/panic":              "10",
	"kernel/panic_on_oops":      "1",
	"kernel/keys/root_maxkeys":  "1000000",
	"kernel/keys/root_maxbytes": "25000000",
}

type mount struct {
	source, target, kind string
	flags                uintptr
	data                 string
}

func (m mount) do() error {
	if err := unix.Mount(m.source, m.target, m.kind, m.flags, m.data); err != nil {
		return fmt.Errorf("mounting %s on %s: %w", m.source, m.target, err)
	}
	return nil
}

func mountAll(mounts ...mount) error {
	for _, m := range mounts {
		if err := m.do(); err != nil {
			return err
		}
	}
	return nil
}

// private makes the node's own view of the file system. It leaves nothing
// outside the mount namespace but what is in the node's directory.
func private(c Config, groups []hierarchy) error {
	// Through descriptors: the node's directory may be below one that is covered.
	dir, err := open(c.Dir)
	if err != nil {
		return err
	}
	kube, err := open(c.Kube)
	if err != nil {
		return err
	}
	in := func(name string) string { return filepath.Join(dir, name) }
	if err := hideBelow(in(etcDir)); err != nil {
		return err
	}
	err = mountAll(
		mount{"none", "/", "", unix.MS_REC | unix.MS_PRIVATE, ""},
		mount{"proc", "/proc", "proc", 0, ""},
		mount{"overlay", "/etc", "overlay", 0, fmt.Sprintf("lowerdir=/etc,upperdir=%s,workdir=%s", in(etcDir), in(workDir))},
		mount{in(logDir), "/var/log", "", unix.MS_BIND, ""},
		mount{in(libDir), "/var/lib", "", unix.MS_BIND, ""},
		mount{in(optDir), "/opt", "", unix.MS_BIND, ""},
		mount{"tmpfs", "/run", "tmpfs", 0, "mode=755"},
		mount{"tmpfs", "/tmp", "tmpfs", 0, "mode=1777"},
		mount{"sysfs", "/sys", "sysfs", 0, ""}, // shows the interfaces of the namespace it is mounted in
	)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(KubeDir, 0o755); err != nil { //nolint:gosec // of the node's own /opt
		return fmt.Errorf("making %s: %w", KubeDir, err)
	}
	if err := (mount{kube, KubeDir, "", unix.MS_BIND, ""}).do(); err != nil {
		return err
	}
	for at, to := range c.Links {
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil { //nolint:gosec // as in any system
			return fmt.Errorf("making a link's directory: %w", err)
		}
		if err := os.Symlink(to, at); err != nil && !os.IsExist(err) {
			return fmt.Errorf("making a link: %w", err)
		}
	}
	if err := mountGroups(groups); err != nil {
		return err
	}
	if err := coverSysctls(); err != nil {
		return err
	}
	// kubelet mounts volumes, which a container's namespace has to see.
	return mount{"none", "/", "", unix.MS_REC | unix.MS_SHARED, ""}.do()
}

// hideBelow keeps what the machine has in these directories of /etc out of the
// node: containerd takes the first network configuration that it finds.
func hideBelow(etc string) error {
	for _, name := range []string{"cni", "containerd", "kubernetes"} {
		dir := filepath.Join(etc, name)
		if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // as in any system
			return fmt.Errorf("making /etc/%s: %w", name, err)
		}
		if err := unix.Setxattr(dir, "trusted.overlay.opaque", []byte("y"), 0); err != nil {
			return fmt.Errorf("hiding the machine's /etc/%s: %w", name, err)
		}
	}
	return nil
}

// open returns a path to the directory that stays good whatever is mounted.
func open(dir string) (string, error) {
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", fmt.Errorf("opening %s: %w", dir, err)
	}
	return fmt.Sprintf("/proc/self/fd/%d", fd), nil
}

// mountGroups mounts each hierarchy anew, so that the root of the node's control
// group namespace is its root.
func mountGroups(groups []hierarchy) error {
	const root = "/sys/fs/cgroup"
	if err := (mount{"tmpfs", root, "tmpfs", 0, "mode=755"}).do(); err != nil {
		return err
	}
	for _, h := range groups {
		name, named := strings.CutPrefix(h.controllers, "name=")
		at, options := filepath.Join(root, name), h.controllers
		if named {
			options = "none," + h.controllers
		}
		if err := os.Mkdir(at, 0o755); err != nil { //nolint:gosec // the kernel's usual mode
			return fmt.Errorf("making %s: %w", at, err)
		}
		if err := (mount{"cgroup", at, "cgroup", 0, options}).do(); err != nil {
			return err
		}
		if each := strings.Split(name, ","); len(each) > 1 {
			for _, one := range each {
				if err := os.Symlink(name, filepath.Join(root, one)); err != nil {
					return fmt.Errorf("naming a controller: %w", err)
				}
			}
		}
	}
	return nil
}

func coverSysctls() error {
	const dir = "/run/sysctl"
	if err := os.Mkdir(dir, 0o755); err != nil { //nolint:gosec // of the node's own /run
		return fmt.Errorf("making %s: %w", dir, err)
	}
	for _, name := range slices.Sorted(maps.Keys(sysctls)) {
		file := filepath.Join(dir, filepath.Base(name))
		if err := os.WriteFile(file, []byte(sysctls[name]+"\n"), 0o644); err != nil { //nolint:gosec // as in /proc/sys
			return fmt.Errorf("writing %s: %w", file, err)
		}
		if err := (mount{file, filepath.Join("/proc/sys", name), "", unix.MS_BIND, ""}).do(); err != nil {
			return err
		}
	}
	return nil
}
