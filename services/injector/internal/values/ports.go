package values

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// resolvePorts turns names of container ports into numbers and leaves out what
// is neither a number, a range nor a name that the pod has.
func resolvePorts(text string, pod *corev1.Pod) (ports string, dropped []string) {
	var out []string
	for item := range strings.SplitSeq(text, ",") {
		item = strings.TrimSpace(item)
		if n, ok := named(item, pod); ok {
			out = append(out, strconv.Itoa(int(n)))
			continue
		}
		switch from, to, ok := parsePorts(item); {
		case !ok && item != "":
			dropped = append(dropped, item)
		case !ok:
		case from == to:
			out = append(out, strconv.Itoa(from))
		default:
			out = append(out, strconv.Itoa(from)+"-"+strconv.Itoa(to))
		}
	}
	return strings.Join(out, ","), dropped
}

// badPorts is the first item of a list that is neither a port nor a range. The
// redirection reads the list itself and takes it or leaves it whole.
func badPorts(text string) (bad string, found bool) {
	for item := range strings.SplitSeq(text, ",") {
		if item = strings.TrimSpace(item); item == "" {
			continue
		}
		if _, _, ok := parsePorts(item); !ok {
			return item, true
		}
	}
	return "", false
}

// badNetwork is the first item of a list that is no CIDR.
func badNetwork(text string) (bad string, found bool) {
	for item := range strings.SplitSeq(text, ",") {
		if item = strings.TrimSpace(item); item == "" {
			continue
		}
		if _, err := netip.ParsePrefix(item); err != nil {
			return item, true
		}
	}
	return "", false
}

// suspects are lists of the pod's own that go on as they are and that its init
// container will not take.
func suspects(own map[string]string) (warnings []string) {
	for _, list := range []struct {
		name, what string
		bad        func(string) (string, bool)
	}{
		{"skip-inbound-ports", "neither a port nor a range of ports", badPorts},
		{"skip-outbound-ports", "neither a port nor a range of ports", badPorts},
		{"skip-subnets", "no CIDR", badNetwork},
	} {
		if item, found := list.bad(own[prefix+list.name]); found {
			warnings = append(warnings, fmt.Sprintf("annotation %s%s: %.60q is %s, so the pod's init container will fail", prefix, list.name, item, list.what))
		}
	}
	return warnings
}

// parsePorts reads one port or a range of them.
func parsePorts(s string) (from, to int, ok bool) {
	low, high, isRange := strings.Cut(s, "-")
	if !isRange {
		high = low
	}
	a, errA := strconv.ParseUint(low, 10, 16)
	b, errB := strconv.ParseUint(high, 10, 16)
	return int(a), int(b), errA == nil && errB == nil && a <= b
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
		from, to, ok := parsePorts(strings.TrimSpace(item))
		if !ok {
			continue // the redirection refuses it, too
		}
		change[from]++
		change[to+1]--
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
