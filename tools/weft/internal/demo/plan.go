// Package demo runs a whole small mesh on one machine without root, Docker or
// Kubernetes: a bus, every service of the control plane, a second cluster, and
// a shop of meshed workloads, each a process of its own.
package demo

import (
	"fmt"
	"net"
	"path/filepath"
	"strconv"
	"time"

	"github.com/weftmesh/weft/tools/weft/internal/child"
	"github.com/weftmesh/weft/tools/weft/internal/pki"
)

// Names that the demo's manifests and certificates agree on.
const (
	trustDomain  = "cluster.local"
	namespace    = "linkerd" // of the control plane, as Linkerd's tools expect it
	near, far    = "local", "far"
	restartAfter = 5 * time.Second
)

// layout is where everything of one run is.
type layout struct {
	bin  string // the binaries
	root string // .demo, made by the run
	base int    // the first port
	from string // the manifests, deploy/demo
	cwd  string // where the person is
	weft string // how the command was called
}

func (l layout) shop() string              { return filepath.Join(l.root, "shop") }
func (l layout) far() string               { return filepath.Join(l.root, "far") }
func (l layout) mirrored() string          { return filepath.Join(l.root, "mirrored") }
func (l layout) logs() string              { return filepath.Join(l.root, "logs") }
func (l layout) history(bus string) string { return filepath.Join(l.root, "history", bus) }
func (l layout) pods() string              { return filepath.Join(l.root, "pods") }

// Ports, from the base.
const (
	portBus = iota
	portFarBus
	portDestination1
	portDestination2
	portPolicy1
	portPolicy2
	portFarPolicy
	portIdentity
	portInjector
	portSpans
	portPages      // where `weft trace` asks
	portAdmin = 20 // the first of the admin servers, one for each process
	ports     = 50 // all of them
)

func (l layout) addr(port int) string {
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(l.base+port))
}

// part is one process of the control plane and how to ask whether it is ready.
type part struct {
	spec  child.Spec
	admin string
}

// plan lists the control plane's processes in start order.
func plan(l layout, certs *pki.Set) []part {
	var parts []part
	admin := portAdmin
	trace := []string{
		"OTEL_TRACES_EXPORTER=otlp", "OTEL_EXPORTER_OTLP_PROTOCOL=grpc", "OTEL_EXPORTER_OTLP_INSECURE=true",
		"OTEL_EXPORTER_OTLP_ENDPOINT=http://" + l.addr(portSpans), "OTEL_BSP_SCHEDULE_DELAY=200",
	}
	add := func(name, binary string, args ...string) {
		addr := l.addr(admin)
		admin++
		parts = append(parts, part{admin: addr, spec: child.Spec{
			Name: name, Path: filepath.Join(l.bin, binary), Args: append(args, "-obs.admin", addr), Env: trace, Restart: restartAfter,
		}})
	}
	bus := func(cluster string) []string {
		port := portBus
		if cluster == far {
			port = portFarBus
		}
		return []string{"-bus.servers", "nats://" + l.addr(port), "-bus.cluster", cluster}
	}
	with := func(common []string, more ...string) []string { return append(append([]string{}, common...), more...) }

	parts = append(parts, busPart(l, "bus", portBus), busPart(l, "far-bus", portFarBus))
	add("watcher", "watcher", with(bus(near), "-source", "dir", "-dir", l.shop()+","+l.mirrored(), "-history.enabled")...)
	add("far-watcher", "watcher", with(bus(far), "-source", "dir", "-dir", l.far(), "-history.enabled")...)
	for i, port := range []int{portDestination1, portDestination2} {
		add(fmt.Sprintf("destination-%d", i+1), "destination", with(bus(near), "-listen", l.addr(port), "-outbound-transport-mode", "transport-header")...)
	}
	for i, port := range []int{portPolicy1, portPolicy2} {
		add(fmt.Sprintf("policy-%d", i+1), "policy", with(bus(near), "-listen", l.addr(port))...)
	}
	add("far-policy", "policy", with(bus(far), "-listen", l.addr(portFarPolicy))...)
	add("identity", "identity", with(bus(near), "-listen", l.addr(portIdentity), "-controller-namespace", namespace,
		"-identity-trust-domain", trustDomain, "-identity-scheme", "kubernetes.io/tls", "-issuer", certs.IssuerDir,
		"-trust-anchors", certs.AnchorsFile, "-tokens", "jwks:"+certs.KeysFile)...)
	add("injector", "injector", with(bus(near), "-listen", l.addr(portInjector), "-cert", certs.WebhookCert, "-key", certs.WebhookKey,
		"-trust-anchors", certs.AnchorsFile, "-controller-namespace", namespace, "-config", filepath.Join(l.from, "values.yaml"))...)
	add("mirror", "mirror", with(bus(near), "-remote.servers", "nats://"+l.addr(portFarBus), "-remote.cluster", far,
		"-cluster-name", far, "-sink", "dir", "-dir", l.mirrored())...)
	add("heartbeat", "heartbeat", bus(near)...)
	return parts
}

func busPart(l layout, name string, port int) part {
	return part{spec: child.Spec{
		Name: name, Path: filepath.Join(l.bin, "weft"), Args: []string{"bus", "--listen", l.addr(port), "--history", l.history(name)}, Restart: restartAfter,
	}}
}
