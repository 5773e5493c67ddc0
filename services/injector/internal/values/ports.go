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
