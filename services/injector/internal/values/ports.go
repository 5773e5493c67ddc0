package values

import (
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// resolvePorts turns names of container ports into numbers and leaves out what
// is neither a number, a range nor a name that the pod has.
func resolvePorts(text string, pod *corev1.Pod) string {
	var out []string
	for item := range strings.SplitSeq(text, ",") {
		item = strings.TrimSpace(item)
		if isPorts(item) {
			out = append(out, item)
			continue
		}
		if n, ok := named(item, pod); ok {
			out = append(out, strconv.Itoa(int(n)))
		}
	}
	return strings.Join(out, ",")
}

func isPorts(s string) bool {
	from, to, isRange := strings.Cut(s, "-")
	a, err := strconv.ParseUint(from, 10, 16)
	if err != nil || !isRange {
		return err == nil
	}
	b, err := strconv.ParseUint(to, 10, 16)
	return err == nil && a <= b
}

func named(name string, pod *corev1.Pod) (int32, bool) {
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		for _, p := range c.Ports {
			if name != "" && p.Name == name {
				return p.ContainerPort, true
			}
		}
	}
	return 0, false
}

// Redirected is a port to which connections go through the proxy: the wanted one
// or, if that is among IgnoreOutboundPorts, the next that is not. false means
// that none does.
func (i *ProxyInit) Redirected(want int) (int, bool) {
	const ports = 1 << 16
	var change [ports + 1]int // of the number of ranges that a port is in, when going up
	for item := range strings.SplitSeq(i.IgnoreOutboundPorts, ",") {
		if item = strings.TrimSpace(item); !isPorts(item) {
			continue // the redirection refuses it, too
		}
		from, to, isRange := strings.Cut(item, "-")
		if !isRange {
			to = from
		}
		a, _ := strconv.Atoi(from) // isPorts
		b, _ := strconv.Atoi(to)
		change[a]++
		change[b+1]--
	}
	ranges, first := change[0], 0
	for port := 1; port < ports; port++ {
		if ranges += change[port]; ranges > 0 {
			continue
		}
		if port >= want {
			return port, true
		}
		if first == 0 {
			first = port
		}
	}
	return first, first > 0
}
