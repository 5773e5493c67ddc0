package census

import corev1 "k8s.io/api/core/v1"

const windows = "windows"

// OnWindows tells whether a pod runs on Windows: by its own word, or since only
// such nodes are left to it. The injector has the same rule.
func OnWindows(spec *corev1.PodSpec) bool {
	if spec.OS != nil && spec.OS.Name != "" {
		return spec.OS.Name == corev1.Windows
	}
	if spec.NodeSelector[corev1.LabelOSStable] == windows || spec.NodeSelector[oldOSLabel] == windows {
		return true
	}
	if spec.Affinity == nil || spec.Affinity.NodeAffinity == nil {
		return false
	}
	required := spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	if required == nil || len(required.NodeSelectorTerms) == 0 {
		return false
	}
	for i := range required.NodeSelectorTerms { // one term is enough for a node
		if !windowsOnly(&required.NodeSelectorTerms[i]) {
			return false
		}
	}
	return true
}

const oldOSLabel = "beta.kubernetes.io/os"

func windowsOnly(term *corev1.NodeSelectorTerm) bool {
	for _, e := range term.MatchExpressions { // all of them hold
		if (e.Key == corev1.LabelOSStable || e.Key == oldOSLabel) && e.Operator == corev1.NodeSelectorOpIn && len(e.Values) == 1 && e.Values[0] == windows {
			return true
		}
	}
	return false
}
