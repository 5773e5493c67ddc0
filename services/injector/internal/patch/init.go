package patch

import (
	"fmt"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"

	"github.com/weftmesh/weft/services/injector/internal/decide"
)

// redirect adds what sends the pod's traffic through the proxy, or, where a
// CNI plugin does that, what proves that it did. It returns how many containers
// those are.
func (j *job) redirect(s *script) int {
	at := "/spec/initContainers/-"
	if j.v.Proxy.NativeSidecar {
		at = "/spec/initContainers/0"
	}
	if j.v.CNIEnabled {
		v, ok := j.validator()
		if !ok {
			return 0
		}
		s.add(at, v)
		return 1
	}
	s.add("/spec/volumes/-", corev1.Volume{
		Name:         j.v.ProxyInit.XtMountPath.Name,
		VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}},
	})
	s.add(at, j.initializer())
	return 1
}

// Groups and users of containers that need none of their own.
const nobody = 65534

func (j *job) initializer() corev1.Container {
	mounts := []corev1.VolumeMount{{
		Name: j.v.ProxyInit.XtMountPath.Name, MountPath: j.v.ProxyInit.XtMountPath.MountPath,
	}}
	if m, ok := decide.FirstAccountMount(&j.Pod.Spec); ok {
		mounts = append(mounts, m)
	}
	return corev1.Container{
		Name:                     "linkerd-init",
		Image:                    j.v.Reference(j.v.Proxy.Image),
		ImagePullPolicy:          j.v.PullPolicy(j.v.Proxy.Image),
		Command:                  []string{"/usr/lib/linkerd/linkerd2-proxy-init"},
		Args:                     j.initArgs(),
		Resources:                requirements(j.v.Proxy.Resources),
		SecurityContext:          j.initSecurity(),
		TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
		VolumeMounts:             mounts,
	}
}

func (j *job) initArgs() []string {
	p, in := &j.v.Proxy, &j.v.ProxyInit
	var args []string
	flag := func(name, value string) { args = append(args, name, value) }
	some := func(name, value string) {
		if value != "" {
			flag(name, value)
		}
	}
	if in.IptablesMode == "nft" {
		flag("--firewall-bin-path", "iptables-nft")
		flag("--firewall-save-bin-path", "iptables-nft-save")
	}
	if j.v.DisableIPv6 {
		args = append(args, "--ipv6=false")
	}
	flag("--incoming-proxy-port", strconv.Itoa(int(p.Ports.Inbound)))
	flag("--outgoing-proxy-port", strconv.Itoa(int(p.Ports.Outbound)))
	flag("--proxy-uid", strconv.FormatInt(p.UID, 10))
	if p.GID >= 0 {
		flag("--proxy-gid", strconv.FormatInt(p.GID, 10))
	}
	inbound := fmt.Sprintf("%d,%d", p.Ports.Control, p.Ports.Admin)
	if in.IgnoreInboundPorts != "" {
		inbound += "," + in.IgnoreInboundPorts
	}
	flag("--inbound-ports-to-ignore", inbound)
	some("--outbound-ports-to-ignore", in.IgnoreOutboundPorts)
	if in.CloseWaitTimeoutSecs > 0 {
		flag("--timeout-close-wait-secs", strconv.FormatInt(in.CloseWaitTimeoutSecs, 10))
	}
	some("--log-format", in.LogFormat)
	some("--log-level", in.LogLevel)
	some("--subnets-to-ignore", in.SkipSubnets)
	return args
}

// initSecurity lets the container program the pod's network, and nothing more
// than the pod's first container may do.
func (j *job) initSecurity() *corev1.SecurityContext {
	in := &j.v.ProxyInit
	need := []corev1.Capability{"NET_ADMIN", "NET_RAW"}
	caps := &corev1.Capabilities{Add: slices.Clone(need)}
	if first := j.firstCapabilities(); first != nil {
		for _, c := range first.Add {
			if !slices.Contains(caps.Add, c) {
				caps.Add = append(caps.Add, c)
			}
		}
		for _, c := range first.Drop {
			if !slices.Contains(need, c) {
				caps.Drop = append(caps.Drop, c)
			}
		}
	}
	privileged := in.CloseWaitTimeoutSecs > 0 || in.Privileged
	user, group := in.RunAsUser, in.RunAsGroup
	if in.RunAsRoot {
		user, group = 0, 0
	} else {
		user, group = orNobody(user), orNobody(group)
	}
	return &corev1.SecurityContext{
		AllowPrivilegeEscalation: new(privileged),
		Capabilities:             caps,
		Privileged:               new(privileged),
		ReadOnlyRootFilesystem:   new(true),
		RunAsNonRoot:             new(!in.RunAsRoot),
		RunAsUser:                new(user),
		RunAsGroup:               new(group),
		SeccompProfile:           &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
	}
}

func orNobody(id int64) int64 {
	if id == 0 {
		return nobody
	}
	return id
}

// validator connects to where the pod's annotations let it be redirected from;
// there is none if they say that nothing is.
func (j *job) validator() (c corev1.Container, ok bool) {
	const usual = 20001
	v := &j.v.NetworkValidator
	port, ok := j.v.ProxyInit.Redirected(usual)
	if !ok {
		return c, false
	}
	connect, listen := fmt.Sprintf("[fd00::1]:%d", port), fmt.Sprintf("[::]:%d", j.v.Proxy.Ports.Outbound)
	if j.v.DisableIPv6 {
		connect, listen = fmt.Sprintf("1.1.1.1:%d", port), fmt.Sprintf("0.0.0.0:%d", j.v.Proxy.Ports.Outbound)
	}
	if v.ConnectAddr != "" {
		connect = v.ConnectAddr
	}
	if v.ListenAddr != "" {
		listen = v.ListenAddr
	}
	return corev1.Container{
		Name:            "linkerd-network-validator",
		Image:           j.v.Reference(j.v.Proxy.Image),
		ImagePullPolicy: j.v.PullPolicy(j.v.Proxy.Image),
		Command:         []string{"/usr/lib/linkerd/linkerd2-network-validator"},
		Args: []string{
			"--log-format", v.LogFormat, "--log-level", v.LogLevel,
			"--connect-addr", connect, "--listen-addr", listen, "--timeout", v.Timeout,
		},
		Resources: requirements(j.v.Proxy.Resources),
		SecurityContext: &corev1.SecurityContext{
			AllowPrivilegeEscalation: new(false),
			Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
			ReadOnlyRootFilesystem:   new(true),
			RunAsNonRoot:             new(true),
			RunAsUser:                new(int64(nobody)),
			RunAsGroup:               new(int64(nobody)),
			SeccompProfile:           &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		},
		TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
	}, true
}

// debug is the container with network tools; some clusters demand probes, so
// it has two that cannot fail.
func (j *job) debug() corev1.Container {
	always := &corev1.Probe{ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"true"}}}}
	return corev1.Container{
		Name:                     "linkerd-debug",
		Image:                    j.v.Reference(j.v.DebugContainer.Image),
		ImagePullPolicy:          j.v.PullPolicy(j.v.DebugContainer.Image),
		LivenessProbe:            always,
		ReadinessProbe:           always,
		TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
	}
}
