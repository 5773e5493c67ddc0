package patch

import (
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/weftmesh/weft/services/injector/internal/decide"
	"github.com/weftmesh/weft/services/injector/internal/values"
)

// proxyName is the container's name; other parts of the mesh look for it.
const proxyName = "linkerd-proxy"

func (j *job) proxy() corev1.Container {
	p := &j.v.Proxy
	c := corev1.Container{
		Name:            proxyName,
		Image:           j.v.Reference(p.Image),
		ImagePullPolicy: j.v.PullPolicy(p.Image),
		Env:             j.env(),
		Ports: []corev1.ContainerPort{
			{Name: "linkerd-proxy", ContainerPort: p.Ports.Inbound},
			{Name: "linkerd-admin", ContainerPort: p.Ports.Admin},
		},
		LivenessProbe:            j.probe("/live", p.LivenessProbe),
		ReadinessProbe:           j.probe("/ready", p.ReadinessProbe),
		Resources:                requirements(p.Resources),
		SecurityContext:          j.proxySecurity(),
		TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
		VolumeMounts:             j.mounts(),
	}
	if p.NativeSidecar {
		c.RestartPolicy = ptr(corev1.ContainerRestartPolicyAlways)
		if p.Await {
			c.StartupProbe = j.probe("/ready", p.StartupProbe)
		}
		return c
	}
	c.Lifecycle = j.lifecycle()
	return c
}

func (j *job) probe(path string, p values.Probe) *corev1.Probe {
	return &corev1.Probe{
		ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{
			Path: path, Port: intstr.FromInt32(j.v.Proxy.Ports.Admin),
		}},
		InitialDelaySeconds: p.InitialDelaySeconds,
		PeriodSeconds:       p.PeriodSeconds,
		TimeoutSeconds:      p.TimeoutSeconds,
		FailureThreshold:    p.FailureThreshold,
	}
}

// lifecycle holds the application back until the proxy is ready, and the proxy
// back when the pod ends. A native sidecar needs neither.
func (j *job) lifecycle() *corev1.Lifecycle {
	run := func(command ...string) *corev1.LifecycleHandler {
		return &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: command}}
	}
	var out corev1.Lifecycle
	if j.v.Proxy.Await {
		out.PostStart = run("/usr/lib/linkerd/linkerd-await", "--timeout=2m",
			"--port="+strconv.Itoa(int(j.v.Proxy.Ports.Admin)))
	}
	if wait := j.v.Proxy.WaitBeforeExitSeconds; wait > 0 {
		out.PreStop = run("/bin/sleep", strconv.FormatUint(wait, 10))
	}
	if out.PostStart == nil && out.PreStop == nil {
		return nil
	}
	return &out
}

func (j *job) proxySecurity() *corev1.SecurityContext {
	p := &j.v.Proxy
	if p.SecurityContext != nil {
		return p.SecurityContext
	}
	out := &corev1.SecurityContext{
		AllowPrivilegeEscalation: new(false),
		Capabilities:             j.firstCapabilities(),
		ReadOnlyRootFilesystem:   new(true),
		RunAsNonRoot:             new(true),
		RunAsUser:                new(p.UID),
		SeccompProfile:           &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
	}
	if p.GID >= 0 {
		out.RunAsGroup = new(p.GID)
	}
	return out
}

// firstCapabilities are those of the pod's first container: a policy that
// admits the pod admits its proxy, too.
func (j *job) firstCapabilities() *corev1.Capabilities {
	if len(j.Pod.Spec.Containers) == 0 {
		return nil
	}
	sc := j.Pod.Spec.Containers[0].SecurityContext
	if sc == nil || sc.Capabilities == nil {
		return nil
	}
	return sc.Capabilities.DeepCopy()
}

func (j *job) mounts() []corev1.VolumeMount {
	out := []corev1.VolumeMount{{Name: identityVolume, MountPath: identityDir}}
	if j.v.Proxy.Tracing.Enabled {
		out = append(out, corev1.VolumeMount{Name: podInfoVolume, MountPath: podInfoDir})
	}
	if j.v.Identity.ServiceAccountTokenProjection {
		out = append(out, corev1.VolumeMount{Name: tokenVolume, MountPath: tokenDir})
	}
	if m, ok := decide.FirstAccountMount(&j.Pod.Spec); ok {
		out = append(out, m)
	}
	return out
}

// requirements turns quantities into resources; values that came from
// annotations have been checked, others that are nonsense are left out.
func requirements(r values.Resources) corev1.ResourceRequirements {
	var out corev1.ResourceRequirements
	set := func(to *corev1.ResourceList, name corev1.ResourceName, text string) {
		if text == "" {
			return
		}
		q, err := resource.ParseQuantity(text)
		if err != nil {
			return
		}
		if *to == nil {
			*to = corev1.ResourceList{}
		}
		(*to)[name] = q
	}
	for name, b := range map[corev1.ResourceName]values.Bounds{
		corev1.ResourceCPU: r.CPU, corev1.ResourceMemory: r.Memory, corev1.ResourceEphemeralStorage: r.EphemeralStorage,
	} {
		set(&out.Limits, name, b.Limit)
		set(&out.Requests, name, b.Request)
	}
	return out
}
