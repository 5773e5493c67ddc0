package shape

import (
	"iter"
	"net/netip"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
)

// Containers yields every container whose ports count, with its path in the
// pod: init containers first, native sidecars among them, then the containers
// proper. It is the only place that knows where containers live; every reader
// of ports, probes and environment goes through it (six separate bugs in
// Linkerd came from loops over spec.containers alone). Init containers that end
// are included, as in Linkerd: a port they declare names a number all the same.
func Containers(pod *corev1.Pod) iter.Seq2[string, *corev1.Container] {
	return func(yield func(string, *corev1.Container) bool) {
		for i := range pod.Spec.InitContainers {
			if !yield("spec.initContainers["+strconv.Itoa(i)+"]", &pod.Spec.InitContainers[i]) {
				return
			}
		}
		for i := range pod.Spec.Containers {
			if !yield("spec.containers["+strconv.Itoa(i)+"]", &pod.Spec.Containers[i]) {
				return
			}
		}
	}
}

// LongRunning yields the containers that serve while the pod is ready: native
// sidecars (init containers that always restart) and the containers proper.
// The EndpointSlice controller resolves named ports among these.
func LongRunning(pod *corev1.Pod) iter.Seq[*corev1.Container] {
	sidecars := len(pod.Spec.InitContainers)
	return func(yield func(*corev1.Container) bool) {
		n := 0
		for _, c := range Containers(pod) {
			n++
			if n <= sidecars && (c.RestartPolicy == nil || *c.RestartPolicy != corev1.ContainerRestartPolicyAlways) {
				continue
			}
			if !yield(c) {
				return
			}
		}
	}
}

// ProxyContainer is the name of the container that makes a pod meshed.
const ProxyContainer = "linkerd-proxy"

// The variables of the proxy that tell where it listens.
const (
	envInbound = "LINKERD2_PROXY_INBOUND_LISTEN_ADDR"
	envAdmin   = "LINKERD2_PROXY_ADMIN_LISTEN_ADDR"
	envControl = "LINKERD2_PROXY_CONTROL_LISTEN_ADDR"
)

// ProxyEnv tells whether a variable of the proxy container is read.
func ProxyEnv(name string) bool {
	return name == envInbound || name == envAdmin || name == envControl
}

// Meshed tells whether a pod has a proxy.
func Meshed(pod *corev1.Pod) bool {
	for _, c := range Containers(pod) {
		if c.Name == ProxyContainer {
			return true
		}
	}
	return false
}

// proxyOf reads what the pod's own proxy says of itself; nil without a proxy.
func proxyOf(pod *corev1.Pod) *busv1.Proxy {
	for _, c := range Containers(pod) {
		if c.Name != ProxyContainer {
			continue
		}
		p := new(busv1.Proxy)
		for _, e := range c.Env {
			switch e.Name {
			case envInbound:
				p.InboundPort = listenPort(e.Value)
			case envAdmin:
				p.AdminPort = listenPort(e.Value)
			case envControl:
				p.ControlPort = listenPort(e.Value)
			}
		}
		return p
	}
	return nil
}

// listenPort is the port of an address such as 0.0.0.0:4143 or [::]:4143, or 0
// when it can't be read.
func listenPort(addr string) uint32 {
	a, err := netip.ParseAddrPort(addr)
	if err != nil {
		return 0
	}
	return uint32(a.Port())
}

// portsOf lists the declared ports of a pod.
func portsOf(pod *corev1.Pod) ([]*busv1.Port, *Problem) {
	var out []*busv1.Port
	for at, c := range Containers(pod) {
		for i, p := range c.Ports {
			field := at + ".ports[" + strconv.Itoa(i) + "]"
			if !validPort(int64(p.ContainerPort)) {
				return nil, problem(Pod, pod, field+".containerPort", "%d is not between 1 and 65535", p.ContainerPort)
			}
			if p.HostPort != 0 && !validPort(int64(p.HostPort)) {
				return nil, problem(Pod, pod, field+".hostPort", "%d is not between 1 and 65535", p.HostPort)
			}
			host := p.HostPort
			if host == 0 && pod.Spec.HostNetwork {
				// The API server fills this in; a plain file does not.
				host = p.ContainerPort
			}
			out = append(out, &busv1.Port{
				Container: c.Name,
				Name:      p.Name,
				Port:      uint32(p.ContainerPort),
				HostPort:  uint32(host),
				Protocol:  protocol(p.Protocol),
			})
		}
	}
	return out, nil
}

func validPort(n int64) bool { return n >= 1 && n <= 65535 }

func protocol(p corev1.Protocol) string {
	if p == "" {
		return string(corev1.ProtocolTCP)
	}
	return string(p)
}

// probesOf lists the httpGet and grpc probes that the kubelet makes.
func probesOf(pod *corev1.Pod) []*busv1.Probe {
	type probe struct {
		path string
		port uint32
		grpc bool
	}
	var out []*busv1.Probe
	seen := make(map[probe]bool)
	for _, c := range Containers(pod) {
		for _, p := range []*corev1.Probe{c.LivenessProbe, c.ReadinessProbe, c.StartupProbe} {
			var row probe
			switch {
			case p == nil:
				continue
			case p.HTTPGet != nil:
				row = probe{path: probePath(p.HTTPGet.Path), port: portIn(c, p.HTTPGet.Port)}
			case p.GRPC != nil:
				row = probe{port: portIn(c, intstr.FromInt32(p.GRPC.Port)), grpc: true}
			default:
				continue
			}
			if seen[row] {
				continue
			}
			seen[row] = true
			out = append(out, &busv1.Probe{Path: row.path, Port: row.port, Grpc: row.grpc})
		}
	}
	return out
}

// probePath is the path that the kubelet asks for, without the query.
func probePath(path string) string {
	path, _, _ = strings.Cut(path, "?")
	if !strings.HasPrefix(path, "/") {
		return "/" + path
	}
	return path
}

// portIn resolves a probe's port within its container; 0 if it is not there.
func portIn(c *corev1.Container, port intstr.IntOrString) uint32 {
	if port.Type == intstr.Int {
		if !validPort(int64(port.IntVal)) {
			return 0
		}
		return uint32(port.IntVal)
	}
	for _, p := range c.Ports {
		if p.Name == port.StrVal && validPort(int64(p.ContainerPort)) {
			return uint32(p.ContainerPort)
		}
	}
	return 0
}
