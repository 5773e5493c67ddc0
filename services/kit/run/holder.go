package run

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// process is who holds a port.
type process struct {
	pid     int
	command string
}

// Bounds on the search for a port's holder: it only makes an error message better.
const (
	mostProcesses = 4096
	mostFiles     = 4096 // open files looked at per process
)

// holder finds the process that listens on port, among those whose open files
// we may see; nil if it can't be told. proc is where procfs is mounted.
func holder(proc, port string) *process {
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return nil
	}
	inodes := make(map[string]bool)
	for _, table := range []string{"tcp", "tcp6"} {
		text, err := os.ReadFile(filepath.Join(proc, "net", table))
		if err != nil {
			continue
		}
		for _, inode := range listeners(string(text), uint16(n)) {
			inodes["socket:["+inode+"]"] = true
		}
	}
	if len(inodes) == 0 {
		return nil
	}
	entries, err := os.ReadDir(proc)
	if err != nil {
		return nil
	}
	for _, e := range entries[:min(len(entries), mostProcesses)] {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || !holds(filepath.Join(proc, e.Name(), "fd"), inodes) {
			continue
		}
		name, _ := os.ReadFile(filepath.Join(proc, e.Name(), "comm"))
		return &process{pid: pid, command: strings.TrimSpace(string(name))}
	}
	return nil
}

// holds tells whether one of the open files in dir is one of the sockets.
func holds(dir string, sockets map[string]bool) bool {
	files, err := os.ReadDir(dir)
	if err != nil {
		return false
	}
	for _, f := range files[:min(len(files), mostFiles)] {
		if target, err := os.Readlink(filepath.Join(dir, f.Name())); err == nil && sockets[target] {
			return true
		}
	}
	return false
}

// listeners reads /proc/net/tcp (proc_pid_net(5)): the inodes of the sockets
// that listen (state 0A) on port, whatever the address.
func listeners(text string, port uint16) []string {
	const listening = "0A"
	want := strings.ToUpper(strconv.FormatUint(uint64(port), 16))
	want = strings.Repeat("0", 4-len(want)) + want
	var inodes []string
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) < 10 || f[3] != listening {
			continue
		}
		if _, p, ok := strings.Cut(f[1], ":"); ok && p == want {
			inodes = append(inodes, f[9])
		}
	}
	return inodes
}
