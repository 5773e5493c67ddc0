package demo

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/weftmesh/weft/tools/weft/internal/child"
	"github.com/weftmesh/weft/tools/weft/internal/pki"
)

// proxyName is the container that the injector adds.
const proxyName = "linkerd-proxy"

// Ports of a workload's proxy, on the workload's own loopback address.
const (
	outboundPort = "4140"
	inboundPort  = "4143"
	tapPort      = "4190"
	adminPort    = "4191"
)

// workload is one pod as two processes: the application and its proxy.
type workload struct {
	pod   *corev1.Pod
	app   child.Spec
	proxy child.Spec
	// published is the pod's manifest; without it the pod is not part of the mesh.
	published string
}

func (w workload) ip() string    { return w.pod.Status.PodIP }
func (w workload) admin() string { return w.ip() + ":" + adminPort }
func (w workload) port() string {
	return fmt.Sprintf("%s:%d", w.ip(), w.pod.Spec.Containers[0].Ports[0].ContainerPort)
}

// prepare does what a kubelet does for a pod that the injector has seen: it
// makes the token and turns containers into processes. Where Kubernetes would
// redirect traffic, the application is told of its proxy by HTTP_PROXY.
func prepare(l layout, certs *pki.Set, pod *corev1.Pod, policy []string) (workload, error) {
	w := workload{pod: pod}
	dir := filepath.Join(l.pods(), pod.Name)
	if err := os.MkdirAll(filepath.Join(dir, "identity"), 0o700); err != nil {
		return w, fmt.Errorf("preparing %s: %w", pod.Name, err)
	}
	token, err := certs.Token(pod.Namespace, pod.Spec.ServiceAccountName)
	if err != nil {
		return w, fmt.Errorf("preparing %s: %w", pod.Name, err)
	}
	if err := os.WriteFile(filepath.Join(dir, "token"), []byte(token), 0o600); err != nil {
		return w, fmt.Errorf("preparing %s: %w", pod.Name, err)
	}
	proxy := find(pod, proxyName)
	if proxy == nil {
		return w, fmt.Errorf("preparing %s: the injector added no container called %s", pod.Name, proxyName)
	}
	env := environment(pod, proxy)
	for name, value := range map[string]string{
		"INBOUND_LISTEN_ADDR": w.ip() + ":" + inboundPort, "OUTBOUND_LISTEN_ADDR": w.ip() + ":" + outboundPort,
		"OUTBOUND_LISTEN_ADDRS": w.ip() + ":" + outboundPort, "ADMIN_LISTEN_ADDR": w.ip() + ":" + adminPort,
		"CONTROL_LISTEN_ADDR": w.ip() + ":" + tapPort, "INBOUND_IPS": w.ip(),
		"DESTINATION_SVC_ADDR": l.addr(portDestination1) + "," + l.addr(portDestination2),
		"POLICY_SVC_ADDR":      strings.Join(policy, ","), "IDENTITY_SVC_ADDR": l.addr(portIdentity),
		"IDENTITY_DIR": filepath.Join(dir, "identity"), "IDENTITY_TOKEN_FILE": filepath.Join(dir, "token"),
		"LOG": "warn,linkerd=info", "SHUTDOWN_GRACE_PERIOD": "2s",
	} {
		env["LINKERD2_PROXY_"+name] = value
	}
	app := pod.Spec.Containers[0]
	for _, c := range pod.Spec.Containers {
		if c.Name != proxyName {
			app = c
			break
		}
	}
	w.app = child.Spec{
		Name: pod.Name + "-app", Path: filepath.Join(l.bin, app.Image), Args: app.Args, Restart: restartAfter,
		Env: []string{"HTTP_PROXY=http://" + w.ip() + ":" + outboundPort},
	}
	w.proxy = child.Spec{Name: pod.Name + "-proxy", Path: filepath.Join(l.bin, "weft-proxy"), Env: list(env), Restart: restartAfter}
	return w, nil
}

func find(pod *corev1.Pod, name string) *corev1.Container {
	for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			if containers[i].Name == name {
				return &containers[i]
			}
		}
	}
	return nil
}

// environment resolves a container's variables: field references, and $(NAME)
// of variables that stand before (Kubernetes' rule).
func environment(pod *corev1.Pod, c *corev1.Container) map[string]string {
	fields := map[string]string{
		"metadata.name": pod.Name, "metadata.namespace": pod.Namespace, "metadata.uid": string(pod.UID),
		"status.podIP": pod.Status.PodIP, "status.podIPs": pod.Status.PodIP, "spec.nodeName": pod.Spec.NodeName,
		"spec.serviceAccountName": pod.Spec.ServiceAccountName,
	}
	env := map[string]string{}
	for _, v := range c.Env {
		value := v.Value
		if v.ValueFrom != nil && v.ValueFrom.FieldRef != nil {
			value = fields[v.ValueFrom.FieldRef.FieldPath]
		}
		for name, known := range env {
			value = strings.ReplaceAll(value, "$("+name+")", known)
		}
		env[v.Name] = value
	}
	return env
}

func list(env map[string]string) []string {
	out := make([]string, 0, len(env))
	for name, value := range env {
		out = append(out, name+"="+value)
	}
	return out
}
