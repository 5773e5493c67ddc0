package judge

import (
	"fmt"
	"net/netip"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/version"
)

// Proxy is the name of the sidecar's container.
const Proxy = "linkerd-proxy"

// MinKubernetes is the oldest that the mesh is made for (spec/features.md §3).
const MinKubernetes = "1.31.0"

// KubernetesVersion judges what /version says.
func KubernetesVersion(git string) error {
	const next = "upgrade the cluster to Kubernetes " + MinKubernetes + " or later"
	have, err := version.ParseGeneric(git)
	if err != nil {
		return fault("API server", "version", fmt.Sprintf("%q cannot be read: %s", git, err), next)
	}
	if have.LessThan(version.MustParseGeneric(MinKubernetes)) {
		return fault("API server", "version", "is "+git+", and at least "+MinKubernetes+" is required", next)
	}
	return nil
}

// over says whether a pod has ended, or is being moved, so that nobody waits for it.
func over(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed || p.DeletionTimestamp != nil
}

// statuses are those of all containers of a pod that run on, sidecars included.
func statuses(p *corev1.Pod) []corev1.ContainerStatus {
	lasting := make(map[string]bool)
	for _, c := range p.Spec.InitContainers {
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			lasting[c.Name] = true
		}
	}
	var all []corev1.ContainerStatus
	for _, s := range p.Status.InitContainerStatuses {
		if lasting[s.Name] {
			all = append(all, s)
		}
	}
	return append(all, p.Status.ContainerStatuses...)
}

// why says what a container that is not ready waits for.
func why(s corev1.ContainerStatus) string {
	text := "is false"
	switch {
	case s.State.Waiting != nil && s.State.Waiting.Reason != "":
		text += ": waiting, " + s.State.Waiting.Reason
		if m := s.State.Waiting.Message; m != "" {
			text += ": " + m
		}
	case s.State.Terminated != nil:
		text += fmt.Sprintf(": terminated, %s, exit code %d", s.State.Terminated.Reason, s.State.Terminated.ExitCode)
	case s.State.Running != nil:
		text += ": it runs, but its readiness probe does not pass"
	}
	if s.RestartCount > 0 {
		text += fmt.Sprintf("; restarted %d times", s.RestartCount)
	}
	return text
}

// Waiting says whether a pod runs and is not ready.
func Waiting(p *corev1.Pod) bool {
	if over(p) || p.Status.Phase != corev1.PodRunning {
		return false
	}
	for _, s := range statuses(p) {
		if !s.Ready {
			return true
		}
	}
	return false
}

// unready notes what is not ready about a pod; only names a single container.
// said is what the pod's process, or Kubernetes, says of it.
func unready(f *faults, p *corev1.Pod, only, said string) {
	pod := named("pod", p.Namespace, p.Name)
	if p.Status.Phase != corev1.PodRunning {
		text := fmt.Sprintf("is %s", p.Status.Phase)
		for _, s := range append(p.Status.InitContainerStatuses, p.Status.ContainerStatuses...) {
			if w := s.State.Waiting; w != nil && w.Reason != "" && w.Reason != "PodInitializing" {
				text += fmt.Sprintf(": container %s waits, %s %s", s.Name, w.Reason, w.Message)
				break
			}
		}
		text = strings.TrimSpace(text)
		if said != "" {
			text += "; " + strings.ReplaceAll(said, "\n", " ")
		}
		f.add(pod, "status.phase", text)
		return
	}
	found := only == ""
	for _, s := range statuses(p) {
		if only != "" && s.Name != only {
			continue
		}
		found = true
		if !s.Ready {
			text := why(s)
			if said != "" && s.Name != Proxy && s.State.Running != nil {
				text += "; it says: " + strings.ReplaceAll(said, "\n", "; ")
			}
			f.add(pod, "status.containerStatuses["+s.Name+"].ready", text)
		}
	}
	if !found {
		f.add(pod, "status.containerStatuses", "does not list "+only)
	}
}

// PodsReady judges whether all pods of the control plane's namespace are ready,
// and whether each component that must be there is. said is, by pod, why
// it is not.
func PodsReady(pods []corev1.Pod, said map[string]string, ns string, components []string) error {
	var f faults
	have := make(map[string]bool)
	for i := range pods {
		p := &pods[i]
		if over(p) {
			continue
		}
		unready(&f, p, "", said[p.Name])
		have[p.Labels["linkerd.io/control-plane-component"]] = true
	}
	for _, c := range components {
		if !have[c] {
			f.add(named("namespace", "", ns), "", "has no pod with the label linkerd.io/control-plane-component="+c)
		}
	}
	return f.err(fmt.Sprintf("kubectl -n %s get pods; kubectl -n %s describe pod NAME; kubectl -n %s logs NAME -c CONTAINER", ns, ns, ns))
}

// ReplicasReady judges whether each Deployment has the replicas it wants.
func ReplicasReady(deployments []appsv1.Deployment, ns string, wanted []string) error {
	var f faults
	have := make(map[string]bool)
	for i := range deployments {
		d := &deployments[i]
		have[d.Name] = true
		want := int32(1)
		if d.Spec.Replicas != nil {
			want = *d.Spec.Replicas
		}
		if ready := d.Status.ReadyReplicas; ready < want {
			f.add(named("Deployment", d.Namespace, d.Name), "status.readyReplicas", fmt.Sprintf("is %d, spec.replicas is %d%s", ready, want, failure(d)))
		}
	}
	for _, name := range wanted {
		if !have[name] {
			f.add(named("Deployment", ns, name), "", "does not exist")
		}
	}
	return f.err(fmt.Sprintf("kubectl -n %s get deployments,replicasets; kubectl -n %s describe deployment NAME", ns, ns))
}

// failure says why a Deployment's pods could not even be made, as for a quota.
func failure(d *appsv1.Deployment) string {
	for _, c := range d.Status.Conditions {
		if c.Type == appsv1.DeploymentReplicaFailure && c.Status == corev1.ConditionTrue {
			return ": " + c.Message
		}
	}
	return ""
}

// Schedulable judges whether a node was found for every pod.
func Schedulable(pods []corev1.Pod, ns string) error {
	var f faults
	for i := range pods {
		p := &pods[i]
		for _, c := range p.Status.Conditions {
			if !over(p) && c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && c.Reason == corev1.PodReasonUnschedulable {
				f.add(named("pod", p.Namespace, p.Name), "status.conditions[PodScheduled]", "is False: "+c.Message)
			}
		}
	}
	return f.err(fmt.Sprintf("make room: kubectl -n %s describe pod NAME; kubectl get nodes", ns))
}

// HighlyAvailable judges whether each Deployment has more than one ready replica.
func HighlyAvailable(deployments []appsv1.Deployment, ns string) error {
	var f faults
	for i := range deployments {
		if d := &deployments[i]; d.Status.ReadyReplicas <= 1 {
			f.add(named("Deployment", d.Namespace, d.Name), "status.readyReplicas", fmt.Sprintf("is %d, though highAvailability is true", d.Status.ReadyReplicas))
		}
	}
	return f.err(fmt.Sprintf("kubectl -n %s scale deployment NAME --replicas=3, or install with values-ha.yaml", ns))
}

// skew is what Linkerd allows between this machine and a node's heartbeat.
const skew = 5*time.Minute + 10*time.Second

// ClockSkew judges the nodes' heartbeats against this machine's clock.
func ClockSkew(nodes []corev1.Node, now time.Time) error {
	var f faults
	for i := range nodes {
		for _, c := range nodes[i].Status.Conditions {
			if c.Type != corev1.NodeReady || c.Status != corev1.ConditionTrue {
				continue // it may really be gone
			}
			if off := now.Sub(c.LastHeartbeatTime.Time); off.Abs() > skew {
				f.add(named("node", "", nodes[i].Name), "status.conditions[Ready].lastHeartbeatTime",
					fmt.Sprintf("is %s; it is %s here, more than %s apart", stamp(c.LastHeartbeatTime.Time), stamp(now), skew))
			}
		}
	}
	return f.err("set the clocks of the nodes and of this machine (NTP); certificates depend on them")
}

// DockerNeedsRoot judges whether proxy-init can work on the nodes' runtime.
func DockerNeedsRoot(nodes []corev1.Node, asRoot bool) error {
	var f faults
	for i := range nodes {
		if r := nodes[i].Status.NodeInfo.ContainerRuntimeVersion; !asRoot && strings.HasPrefix(r, "docker:") {
			f.add(named("node", "", nodes[i].Name), "status.nodeInfo.containerRuntimeVersion", "is "+r+", under which proxy-init must run as root")
		}
	}
	return f.err("install with --set proxyInit.runAsRoot=true")
}

// Networks reads the value clusterNetworks.
func Networks(text string) ([]netip.Prefix, error) {
	var all []netip.Prefix
	for one := range strings.SplitSeq(text, ",") {
		if one = strings.TrimSpace(one); one == "" {
			continue
		}
		p, err := netip.ParsePrefix(one)
		if err != nil {
			return nil, fault("ConfigMap linkerd-config", "values.clusterNetworks", fmt.Sprintf("%q is no network: %s", one, err), networkNext)
		}
		all = append(all, p)
	}
	return all, nil
}

const networkNext = "install or upgrade with --set clusterNetworks=…, with commas escaped (\\,), so that it has all networks of the cluster"

// Address is an address or a network of the cluster, and whose it is.
type Address struct {
	Object, Field string
	Text          string // an IP or a CIDR
}

// Contained judges whether networks has every address.
func Contained(networks []netip.Prefix, addresses []Address) error {
	var f faults
	for _, a := range addresses {
		net, err := netip.ParsePrefix(a.Text)
		if err != nil {
			ip, ipErr := netip.ParseAddr(a.Text)
			if ipErr != nil {
				f.add(a.Object, a.Field, fmt.Sprintf("%q is no address", a.Text))
				continue
			}
			net = netip.PrefixFrom(ip.Unmap(), ip.Unmap().BitLen())
		}
		if !within(networks, net) {
			f.add(a.Object, a.Field, a.Text+" is not contained in clusterNetworks")
		}
	}
	return f.err(networkNext)
}

func within(networks []netip.Prefix, net netip.Prefix) bool {
	for _, n := range networks {
		if n.Bits() <= net.Bits() && n.Contains(net.Addr()) {
			return true
		}
	}
	return false
}
