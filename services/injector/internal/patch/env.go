package patch

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/weftmesh/weft/services/injector/internal/values"
)

// environment is a list of variables in the making.
type environment []corev1.EnvVar

func (e *environment) field(name, path string) {
	*e = append(*e, corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{
		FieldRef: &corev1.ObjectFieldSelector{FieldPath: path},
	}})
}

func (e *environment) raw(name, value string) {
	*e = append(*e, corev1.EnvVar{Name: name, Value: value})
}

// set adds a variable of the proxy's.
func (e *environment) set(name, value string) { e.raw("LINKERD2_PROXY_"+name, value) }

// some adds a variable of the proxy's unless it is empty.
func (e *environment) some(name, value string) {
	if value != "" {
		e.set(name, value)
	}
}

// env is the proxy's environment, in the order of Linkerd's chart: a variable
// may refer only to those before it.
func (j *job) env() []corev1.EnvVar {
	var e environment
	j.podEnv(&e)
	j.workerEnv(&e)
	j.policyEnv(&e)
	j.listenEnv(&e)
	j.traceEnv(&e)
	j.tuningEnv(&e, "INBOUND", j.v.Proxy.Inbound)
	j.tuningEnv(&e, "OUTBOUND", j.v.Proxy.Outbound)
	e.some("INBOUND_PORTS_DISABLE_PROTOCOL_DETECTION", j.v.Proxy.OpaquePorts)
	e.set("DESTINATION_CONTEXT", `{"ns":"$(_pod_ns)", "nodeName":"$(_pod_nodeName)", "pod":"$(_pod_name)"}`+"\n")
	j.identityEnv(&e)
	e.some("ACCESS_LOG", j.v.Proxy.AccessLog)
	e.some("SHUTDOWN_GRACE_PERIOD", j.v.Proxy.ShutdownGracePeriod)
	return slices.Concat([]corev1.EnvVar(e), j.v.Proxy.AdditionalEnv, j.v.Proxy.ExperimentalEnv)
}

func (j *job) podEnv(e *environment) {
	e.field("_pod_name", "metadata.name")
	e.field("_pod_ns", "metadata.namespace")
	e.field("_pod_uid", "metadata.uid")
	e.field("_pod_ip", "status.podIP")
	e.field("_pod_nodeName", "spec.nodeName")
	e.raw("_pod_containerName", proxyName)
}

func (j *job) workerEnv(e *environment) {
	p := &j.v.Proxy
	if p.Cores > 0 {
		e.set("CORES", strconv.FormatInt(p.Cores, 10))
		e.set("CORES_MIN", strconv.FormatInt(p.Cores, 10))
	} else {
		w := p.Runtime.Workers
		minimum := strconv.FormatInt(max(w.Minimum, 1), 10)
		e.set("CORES", minimum)
		e.set("CORES_MIN", minimum)
		if w.Maximum > 0 {
			e.set("CORES_MAX", strconv.FormatInt(w.Maximum, 10))
		}
		if w.MaximumCPURatio > 0 {
			e.set("CORES_MAX_RATIO", strconv.FormatFloat(w.MaximumCPURatio, 'g', -1, 64))
		}
	}
	e.some("INBOUND_PORTS_REQUIRE_IDENTITY", p.RequireIdentityOnInboundPorts)
	e.some("INBOUND_PORTS_REQUIRE_TLS", p.RequireTLSOnInboundPorts)
	e.set("SHUTDOWN_ENDPOINT_ENABLED", strconv.FormatBool(p.EnableShutdownEndpoint))
	level := p.LogLevel
	if p.LogHTTPHeaders != "insecure" {
		level += ",[{headers}]=off,[{request}]=off" // headers hold secrets
	}
	e.set("LOG", level)
	e.set("LOG_FORMAT", p.LogFormat)
}

func (j *job) policyEnv(e *environment) {
	p, svc := &j.v.Proxy, ".svc."+j.v.ClusterDomain+"."
	e.set("DESTINATION_SVC_ADDR", "linkerd-dst-headless."+j.ControllerNamespace+svc+":8086")
	e.set("DESTINATION_PROFILE_NETWORKS", j.v.ClusterNetworks)
	e.set("POLICY_CLUSTER_NETWORKS", j.v.ClusterNetworks)
	e.set("POLICY_SVC_ADDR", "linkerd-policy."+j.ControllerNamespace+svc+":8090")
	e.set("POLICY_WORKLOAD", `{"ns":"$(_pod_ns)", "pod":"$(_pod_name)"}`+"\n")
	e.set("INBOUND_DEFAULT_POLICY", p.DefaultInboundPolicy)
	e.some("CONTROL_STREAM_INITIAL_TIMEOUT", p.Control.Streams.InitialTimeout)
	e.some("CONTROL_STREAM_IDLE_TIMEOUT", p.Control.Streams.IdleTimeout)
	e.some("CONTROL_STREAM_LIFETIME", p.Control.Streams.Lifetime)
	e.some("INBOUND_CONNECT_TIMEOUT", p.InboundConnectTimeout)
	e.some("OUTBOUND_CONNECT_TIMEOUT", p.OutboundConnectTimeout)
	e.some("OUTBOUND_DISCOVERY_IDLE_TIMEOUT", p.OutboundDiscoveryCacheUnusedTimeout)
	e.some("INBOUND_DISCOVERY_IDLE_TIMEOUT", p.InboundDiscoveryCacheUnusedTimeout)
	const never = "365d" // the proxy knows no "off"
	if p.DisableOutboundProtocolDetect {
		e.set("OUTBOUND_DETECT_TIMEOUT", never)
	}
	if p.DisableInboundProtocolDetectTimeout {
		e.set("INBOUND_DETECT_TIMEOUT", never)
	}
}

func (j *job) listenEnv(e *environment) {
	p := &j.v.Proxy
	anyAddr, loopback := "[::]", fmt.Sprintf("127.0.0.1:%d,[::1]:%d", p.Ports.Outbound, p.Ports.Outbound)
	if j.v.DisableIPv6 {
		anyAddr, loopback = "0.0.0.0", fmt.Sprintf("127.0.0.1:%d", p.Ports.Outbound)
	}
	e.set("CONTROL_LISTEN_ADDR", fmt.Sprintf("%s:%d", anyAddr, p.Ports.Control))
	e.set("ADMIN_LISTEN_ADDR", fmt.Sprintf("%s:%d", anyAddr, p.Ports.Admin))
	e.set("OUTBOUND_LISTEN_ADDR", fmt.Sprintf("127.0.0.1:%d", p.Ports.Outbound))
	e.set("OUTBOUND_LISTEN_ADDRS", loopback)
	e.set("INBOUND_LISTEN_ADDR", fmt.Sprintf("%s:%d", anyAddr, p.Ports.Inbound))
	e.field("LINKERD2_PROXY_INBOUND_IPS", "status.podIPs")
	e.set("INBOUND_PORTS", strings.Join(inboundPorts(&j.Pod.Spec), ","))
	if p.IsGateway {
		e.set("INBOUND_GATEWAY_SUFFIXES", "svc."+j.v.ClusterDomain+".")
	}
	if p.IsIngress {
		e.set("INGRESS_MODE", "true")
	}
	suffixes := "svc." + j.v.ClusterDomain + "."
	if p.EnableExternalProfiles {
		suffixes = "."
	}
	e.set("DESTINATION_PROFILE_SUFFIXES", suffixes)
	e.set("INBOUND_ACCEPT_KEEPALIVE", "10000ms")
	e.set("OUTBOUND_CONNECT_KEEPALIVE", "10000ms")
	e.set("INBOUND_ACCEPT_USER_TIMEOUT", "30s")
	e.set("OUTBOUND_CONNECT_USER_TIMEOUT", "30s")
	e.set("OUTBOUND_METRICS_HOSTNAME_LABELS", strconv.FormatBool(p.Metrics.HostnameLabels))
}

// inboundPorts are the ports whose policy the proxy asks for at start: those of
// all containers and of the probes that the kubelet makes while the pod runs,
// sorted as text, as Linkerd has them.
func inboundPorts(spec *corev1.PodSpec) []string {
	var out []string
	add := func(port int32) {
		if text := strconv.Itoa(int(port)); port > 0 && !slices.Contains(out, text) {
			out = append(out, text)
		}
	}
	for _, c := range slices.Concat(spec.InitContainers, spec.Containers) {
		for _, p := range c.Ports {
			add(p.ContainerPort)
		}
		for _, probe := range []*corev1.Probe{c.LivenessProbe, c.ReadinessProbe} {
			if probe != nil && probe.HTTPGet != nil && probe.HTTPGet.Port.Type == intstr.Int {
				add(probe.HTTPGet.Port.IntVal)
			}
		}
	}
	slices.Sort(out)
	return out
}

func (j *job) traceEnv(e *environment) {
	t := &j.v.Proxy.Tracing
	if !t.Enabled {
		return
	}
	e.set("TRACE_ATTRIBUTES_PATH", podInfoDir+"/labels")
	e.set("TRACE_ANNOTATIONS_PATH", podInfoDir+"/annotations")
	e.set("TRACE_PROTOCOL", "opentelemetry")
	e.some("TRACE_SERVICE_NAME", t.TraceServiceName)
	e.set("TRACE_COLLECTOR_SVC_ADDR", t.Collector.Endpoint)
	if id := t.Collector.MeshIdentity; id.ServiceAccountName != "" && id.Namespace != "" {
		e.set("TRACE_COLLECTOR_SVC_NAME", j.identity(id.ServiceAccountName, id.Namespace))
	}
	attributes := map[string]string{
		"k8s.pod.ip":         "$(_pod_ip)",
		"k8s.pod.uid":        "$(_pod_uid)",
		"k8s.container.name": "$(_pod_containerName)",
	}
	maps.Copy(attributes, t.Labels)
	var lines strings.Builder
	for _, key := range slices.Sorted(maps.Keys(attributes)) {
		fmt.Fprintf(&lines, "%s=%s\n", key, attributes[key])
	}
	e.set("TRACE_EXTRA_ATTRIBUTES", lines.String())
}

// tuningEnv writes any parameter proxy.<side>.<scope>.<proto>.<param>.
func (j *job) tuningEnv(e *environment, side string, t values.Tuning) {
	for _, scope := range slices.Sorted(maps.Keys(t)) {
		for _, proto := range slices.Sorted(maps.Keys(t[scope])) {
			params := t[scope][proto]
			for _, param := range slices.Sorted(maps.Keys(params)) {
				e.set(strings.Join([]string{side, snake(scope), snake(proto), snake(param)}, "_"), plainly(params[param]))
			}
		}
	}
}

// plainly writes a value of the values file: numbers without an exponent.
func plainly(value any) string {
	if n, ok := value.(float64); ok {
		return strconv.FormatFloat(n, 'f', -1, 64)
	}
	return fmt.Sprint(value)
}

// snake writes keepAliveInterval as KEEP_ALIVE_INTERVAL.
func snake(name string) string {
	var b strings.Builder
	for i, r := range name {
		if i > 0 && unicode.IsUpper(r) {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToUpper(r))
	}
	return b.String()
}

// identity is the name in the certificate of a service account's workloads.
func (j *job) identity(account, namespace string) string {
	return account + "." + namespace + ".serviceaccount.identity." + j.ControllerNamespace + "." + j.v.TrustDomain()
}

func (j *job) identityEnv(e *environment) {
	e.field("_pod_sa", "spec.serviceAccountName")
	e.raw("_l5d_ns", j.ControllerNamespace)
	e.raw("_l5d_trustdomain", j.v.TrustDomain())
	e.set("IDENTITY_DIR", identityDir)
	e.set("IDENTITY_TRUST_ANCHORS", strings.TrimSpace(j.Anchors)+"\n")
	token := "/var/run/secrets/kubernetes.io/serviceaccount/token"
	if j.v.Identity.ServiceAccountTokenProjection {
		token = tokenDir + "/" + tokenVolume
	}
	e.set("IDENTITY_TOKEN_FILE", token)
	e.set("IDENTITY_SVC_ADDR", "linkerd-identity-headless."+j.ControllerNamespace+".svc."+j.v.ClusterDomain+".:8080")
	e.set("IDENTITY_LOCAL_NAME", j.identity("$(_pod_sa)", "$(_pod_ns)"))
	e.set("IDENTITY_SVC_NAME", j.identity("linkerd-identity", j.ControllerNamespace))
	e.set("DESTINATION_SVC_NAME", j.identity("linkerd-destination", j.ControllerNamespace))
	e.set("POLICY_SVC_NAME", j.identity("linkerd-destination", j.ControllerNamespace))
}
