// Package limits fits the Go runtime into the memory and CPU that the process's
// cgroup allows. Reading and deciding are pure functions of files and values;
// only Apply touches the runtime. What a person set in GOMEMLIMIT or
// GOMAXPROCS always wins.
package limits

import (
	"io/fs"
	"math"
	"path"
	"strconv"
	"strings"
)

// Cgroup is what the kernel allows. Zero means no limit.
type Cgroup struct {
	Memory int64   // bytes
	CPUs   float64 // processors' worth of time, 0.5 being half of one
}

// unlimitedV1 is where cgroup v1's "no limit" begins: it is the largest
// multiple of the page size below 2^63, so anything above 2^62 counts.
const unlimitedV1 = 1 << 62

// Read finds the limits of the calling process below root (the file system's
// root). A cgroup is bound by its ancestors as well, so the least limit of the
// whole chain counts. What cannot be read does not limit.
func Read(root fs.FS) Cgroup {
	groups := parseGroups(readText(root, "proc/self/cgroup"))
	mounts := parseMounts(readText(root, "proc/self/mountinfo"))
	var c Cgroup
	for _, m := range mounts {
		switch {
		case m.unified:
			chain(groups[""], m, func(dir string) {
				c.limitMemory(parseMemory(readText(root, path.Join(dir, "memory.max"))))
				c.limitCPUs(parseCPUMax(readText(root, path.Join(dir, "cpu.max"))))
			})
		case m.has("memory"):
			chain(groups["memory"], m, func(dir string) {
				c.limitMemory(parseMemory(readText(root, path.Join(dir, "memory.limit_in_bytes"))))
			})
		case m.has("cpu"):
			chain(groups["cpu"], m, func(dir string) {
				c.limitCPUs(parseQuota(
					readText(root, path.Join(dir, "cpu.cfs_quota_us")),
					readText(root, path.Join(dir, "cpu.cfs_period_us"))))
			})
		}
	}
	return c
}

func (c *Cgroup) limitMemory(bytes int64) {
	if bytes > 0 && (c.Memory == 0 || bytes < c.Memory) {
		c.Memory = bytes
	}
}

func (c *Cgroup) limitCPUs(n float64) {
	if n > 0 && (c.CPUs == 0 || n < c.CPUs) {
		c.CPUs = n
	}
}

// mount is one mounted cgroup hierarchy.
type mount struct {
	root    string // the cgroup that shows at dir
	dir     string // where, without the leading slash ("." at the root)
	unified bool   // cgroup v2
	options string // v1: the controllers, between commas
}

func (m mount) has(controller string) bool {
	return strings.Contains(","+m.options+",", ","+controller+",")
}

// chain visits the directory of group and those above it, up to the mount.
func chain(group string, m mount, visit func(dir string)) {
	const deepest = 64 // deeper than anybody nests; keeps a strange file from holding us up
	inside := "/"
	if group == m.root || m.root == "/" {
		inside = strings.TrimPrefix(group, strings.TrimSuffix(m.root, "/"))
	} else if rest, ok := strings.CutPrefix(group, m.root+"/"); ok {
		inside = rest
	}
	dir := path.Join(m.dir, path.Clean("/"+inside))
	for range deepest {
		visit(dir)
		if dir == m.dir || dir == "." || dir == "/" {
			return
		}
		dir = path.Dir(dir)
	}
}

// parseGroups reads /proc/self/cgroup ("4:cpu,cpuacct:/a", "0::/a") into
// controller -> cgroup; cgroup v2 has the controller "".
func parseGroups(text string) map[string]string {
	groups := make(map[string]string)
	for line := range strings.Lines(text) {
		f := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(f) != 3 || !strings.HasPrefix(f[2], "/") {
			continue
		}
		for controller := range strings.SplitSeq(f[1], ",") {
			groups[controller] = f[2]
		}
	}
	return groups
}

// parseMounts picks the cgroup hierarchies out of /proc/self/mountinfo, whose
// lines are "36 35 98:0 /root /dir opts … - fstype source superopts" (proc(5)).
func parseMounts(text string) []mount {
	var mounts []mount
	for line := range strings.Lines(text) {
		head, tail, ok := strings.Cut(line, " - ")
		h, t := strings.Fields(head), strings.Fields(tail)
		if !ok || len(h) < 5 || len(t) < 1 || !strings.HasPrefix(t[0], "cgroup") {
			continue
		}
		m := mount{root: unescape(h[3]), dir: path.Clean(strings.TrimPrefix(unescape(h[4]), "/")), unified: t[0] == "cgroup2"}
		if !m.unified && len(t) >= 3 {
			m.options = t[2]
		}
		mounts = append(mounts, m)
	}
	return mounts
}

// unescape undoes mountinfo's octal escapes of blank, tab, newline and backslash.
func unescape(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}

// parseMemory reads memory.max or memory.limit_in_bytes; 0 is no limit.
func parseMemory(text string) int64 {
	n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	if err != nil || n <= 0 || n >= unlimitedV1 {
		return 0
	}
	return n
}

// parseCPUMax reads cgroup v2's cpu.max, "quota period" in microseconds.
func parseCPUMax(text string) float64 {
	quota, period, ok := strings.Cut(strings.TrimSpace(text), " ")
	if !ok {
		return 0
	}
	return parseQuota(quota, period)
}

// parseQuota divides a CPU quota by its period; 0 is no limit ("max", -1).
func parseQuota(quota, period string) float64 {
	q, errQ := strconv.ParseInt(strings.TrimSpace(quota), 10, 64)
	p, errP := strconv.ParseInt(strings.TrimSpace(period), 10, 64)
	if errQ != nil || errP != nil || q <= 0 || p <= 0 {
		return 0
	}
	return math.Min(float64(q)/float64(p), math.MaxInt32)
}

// readText is the file's content, "" if there is none.
func readText(root fs.FS, name string) string {
	b, err := fs.ReadFile(root, name)
	if err != nil {
		return ""
	}
	return string(b)
}
