// Package node makes the machines of a test cluster out of namespaces: one
// process per machine, PID 1 of its own net, mount, pid, uts, ipc and cgroup
// namespaces, which runs the machine's daemons and ends with them. Killing that
// one process removes every process, mount and interface of the machine.
//
// Everything a node writes is below its directory, which the node sees as its
// own /etc, /opt, /var/lib and /var/log. The program that uses this package
// must call Main for the words in Words, since a node is started from it.
package node

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
)

// Config is what a node is told.
type Config struct {
	// Host is the node's host name.
	Host string `json:"host"`
	// Dir is the node's directory on the machine.
	Dir string `json:"dir"`
	// Kube is a directory on the machine that the node sees as KubeDir.
	Kube string `json:"kube"`
	// Group is the name of the node's control group below the caller's own.
	Group string `json:"group"`
	// Address is that of eth0, with the length of the network that all nodes share.
	Address netip.Prefix `json:"address"`
	// Services is the range of cluster IPs. It is routed to eth0: only a packet
	// that has a route reaches the output hook, where kube-proxy redirects it.
	Services netip.Prefix `json:"services"`
	// Address6 and Services6 are the same of IPv6, or invalid.
	Address6  netip.Prefix `json:"address6"`
	Services6 netip.Prefix `json:"services6"`
	// Links are symbolic links that the node makes at its start: where, and to what.
	Links map[string]string `json:"links"`
	// Components are the daemons that Start can start.
	Components []Component `json:"components"`
}

// Component is a daemon of a node. It writes to /var/log/<Name>.log.
type Component struct {
	Name string   `json:"name"` // also argv[0]
	Path string   `json:"path"`
	Args []string `json:"args"`
	// User is the user and group that it runs as; 0 is root.
	User uint32 `json:"user"`
}

// KubeDir is where a node sees Config.Kube.
const KubeDir = "/opt/kube"

// searchPath is PATH of everything in a node: Debian's daemons are in sbin.
const searchPath = KubeDir + ":/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// The files of a node's directory. The four directories are seen elsewhere.
const (
	configFile = "node.json"
	socketFile = "node.sock"
	outputFile = "node.log"
	groupsFile = "cgroups"
	etcDir     = "etc" // over /etc
	libDir     = "lib" // /var/lib
	logDir     = "log" // /var/log
	optDir     = "opt" // /opt
	workDir    = "work"
)

// EtcDir is where the caller puts files that the node shall see in /etc.
func (c Config) EtcDir() string { return filepath.Join(c.Dir, etcDir) }

// LibDir is where the caller puts files that the node shall see in /var/lib.
func (c Config) LibDir() string { return filepath.Join(c.Dir, libDir) }

// LogFile is where the component's output is, on the machine.
func (c Config) LogFile(component string) string {
	return filepath.Join(c.Dir, logDir, component+".log")
}

func (c Config) path(name string) string { return filepath.Join(c.Dir, name) }

func (c Config) component(name string) (Component, error) {
	for _, k := range c.Components {
		if k.Name == name {
			return k, nil
		}
	}
	return Component{}, fmt.Errorf("node %s has no component %s", c.Host, name)
}

// save makes the node's directories and writes the configuration.
func (c Config) save() error {
	for _, dir := range []string{etcDir, libDir, logDir, optDir, workDir} {
		if err := os.MkdirAll(c.path(dir), 0o755); err != nil { //nolint:gosec // pods of any user read there
			return fmt.Errorf("making a node's directories: %w", err)
		}
	}
	data, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return fmt.Errorf("writing a node's configuration: %w", err)
	}
	if err := os.WriteFile(c.path(configFile), data, 0o600); err != nil {
		return fmt.Errorf("writing a node's configuration: %w", err)
	}
	return nil
}

func loadConfig(path string) (Config, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return Config{}, fmt.Errorf("reading a node's configuration: %w", err)
	}
	var c Config
	if err := json.Unmarshal(data, &c); err != nil {
		return Config{}, fmt.Errorf("reading a node's configuration in %s: %w", path, err)
	}
	return c, nil
}
