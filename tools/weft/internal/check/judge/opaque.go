package judge

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// defaultOpaque are the ports that are opaque where nobody says which are
// (spec/features.md §5.1).
const defaultOpaque = "25,587,3306,4444,5432,6379,9300,11211"

// OpaqueKey is the annotation that names opaque ports.
const OpaqueKey = "config.linkerd.io/opaque-ports"

// mostPort is the highest that there is.
const mostPort = 65535

// ports reads a list of ports, ranges and names, as far as it makes sense. Names
// are looked up by the caller's function.
func ports(text string, named func(string) (int32, bool)) map[int32]bool {
	set := make(map[int32]bool)
	for one := range strings.SplitSeq(text, ",") {
		one = strings.TrimSpace(one)
		from, to, isRange := strings.Cut(one, "-")
		low, err := strconv.ParseUint(from, 10, 16)
		high := low
		if err == nil && isRange {
			high, err = strconv.ParseUint(to, 10, 16)
		}
		if err != nil {
			if port, ok := named(one); ok {
				set[port] = true
			}
			continue
		}
		for p := max(low, 1); p <= min(high, mostPort); p++ {
			set[int32(p)] = true
		}
	}
	return set
}

// containerPort finds a container's port by its name.
func containerPort(p *corev1.Pod, name string) (int32, bool) {
	for _, list := range [][]corev1.Container{p.Spec.Containers, p.Spec.InitContainers} {
		for _, c := range list {
			for _, port := range c.Ports {
				if port.Name == name {
					return port.ContainerPort, true
				}
			}
		}
	}
	return 0, false
}

// Opaque judges whether Services and the pods that they select agree on which
// ports are opaque: a client reads the Service's annotation, a server the pod's.
func Opaque(services []corev1.Service, pods []corev1.Pod) error {
	var f faults
	byNamespace := make(map[string][]*corev1.Pod)
	for i := range pods {
		if p := &pods[i]; !over(p) && Meshed(p) {
			byNamespace[p.Namespace] = append(byNamespace[p.Namespace], p)
		}
	}
	for i := range services {
		s := &services[i]
		if len(s.Spec.Selector) == 0 {
			continue
		}
		seen := make(map[string]bool)
		for _, p := range byNamespace[s.Namespace] {
			if selects(s, p) {
				agree(&f, s, p, seen)
			}
		}
	}
	return f.err("give the Service and the pod template (or their namespace) the same annotation " + OpaqueKey)
}

func selects(s *corev1.Service, p *corev1.Pod) bool {
	for key, value := range s.Spec.Selector {
		if have, there := p.Labels[key]; !there || have != value {
			return false
		}
	}
	return true
}

// agree compares one Service with one of its pods. What was said of another pod
// of the same workload is not said again.
func agree(f *faults, s *corev1.Service, p *corev1.Pod, seen map[string]bool) {
	annotated, ofService := s.Annotations[OpaqueKey]
	podText, ofPod := p.Annotations[OpaqueKey]
	switch {
	case !ofService && !ofPod:
		return
	case !ofService:
		annotated = defaultOpaque
	case !ofPod:
		podText = defaultOpaque
	}
	service := ports(annotated, func(name string) (int32, bool) {
		for _, port := range s.Spec.Ports {
			if port.Name == name {
				return port.Port, true
			}
		}
		return 0, false
	})
	pod := ports(podText, func(name string) (int32, bool) { return containerPort(p, name) })
	say := func(object, wrong string) {
		if key := owner(p) + wrong; !seen[key] {
			seen[key] = true
			f.add(object, "annotation "+OpaqueKey, wrong)
		}
	}
	for _, port := range s.Spec.Ports {
		target := port.TargetPort.IntVal
		if name := port.TargetPort.StrVal; name != "" {
			var known bool
			if target, known = containerPort(p, name); !known {
				continue // the Service does not lead to this pod by that port
			}
		} else if target == 0 {
			target = port.Port
		}
		if service[port.Port] && !pod[target] {
			say(named("pod", p.Namespace, p.Name), fmt.Sprintf("lacks port %d, which Service %s has opaque as its port %d", target, s.Name, port.Port))
		}
		if !service[port.Port] && pod[target] {
			say(named("Service", s.Namespace, s.Name), fmt.Sprintf("lacks port %d, whose target %d is opaque on its pods", port.Port, target))
		}
	}
}

// owner is the workload that a pod stands for.
func owner(p *corev1.Pod) string {
	for _, o := range p.OwnerReferences {
		return string(o.UID)
	}
	return p.Name
}
