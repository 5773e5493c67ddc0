package decide

import corev1 "k8s.io/api/core/v1"

const windows = "windows"

// osLabels are the labels of nodes that name their system, the old one last.
var osLabels = [...]string{corev1.LabelOSStable, "beta.kubernetes.io/os"}

// onWindows says whether a pod runs on Windows: by its own word, or since only
// such nodes are left to it. The proxy's programs and its redirection are
// Linux's.
func onWindows(spec *corev1.PodSpec) bool {
	if spec.OS != nil && spec.OS.Name != "" {
		return spec.OS.Name == corev1.Windows
	}
	for _, label := range osLabels {
		if spec.NodeSelector[label] == windows {
			return true
		}
	}
	if spec.Affinity == nil || spec.Affinity.NodeAffinity == nil {
		return false
	}
	required := spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	if required == nil || len(required.NodeSelectorTerms) == 0 {
		return false
	}
	for i := range required.NodeSelectorTerms { // one term is enough for a node
		if !windowsTerm(&required.NodeSelectorTerms[i]) {
			return false
		}
	}
	return true
}

// windowsTerm says whether a term takes nodes of Windows only.
func windowsTerm(term *corev1.NodeSelectorTerm) bool {
	for _, e := range term.MatchExpressions { // all of them hold
		if e.Operator != corev1.NodeSelectorOpIn || len(e.Values) != 1 || e.Values[0] != windows {
			continue
		}
		for _, label := range osLabels {
			if e.Key == label {
				return true
			}
		}
	}
	return false
}
