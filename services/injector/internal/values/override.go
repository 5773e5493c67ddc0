package values

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Prefixes of the annotations that configure a proxy.
const (
	prefix      = "config.linkerd.io/"
	prefixBeta  = "config.beta.linkerd.io/"
	prefixAlpha = "config.alpha.linkerd.io/"
	otelPrefix  = "resource.opentelemetry.io/"

	inject        = "linkerd.io/inject"
	additionalEnv = prefix + "proxy-additional-env"
	native        = "proxy-enable-native-sidecar"
)

// Annotations are the two layers that override values.
type Annotations struct {
	Namespace map[string]string
	// Pod holds the pod's own and those it inherited.
	Pod map[string]string
	// Own holds the pod's own alone: the layers of the environment are merged.
	Own map[string]string
}

// Effective is base as a pod's annotations override it, and what of them could
// not be understood. base is not changed.
func (v *Values) Effective(a Annotations, pod *corev1.Pod) (*Values, []string) {
	out := *v
	var warnings []string
	for _, key := range slices.Sorted(maps.Keys(a.Pod)) {
		set, ok := overrides[key]
		if !ok {
			continue
		}
		if err := set(&out, a.Pod[key]); err != nil {
			warnings = append(warnings, fmt.Sprintf("annotation %s is ignored: %s", key, err))
		}
	}
	if text, ok := a.Pod[prefix+"opaque-ports"]; ok {
		var dropped []string
		out.Proxy.OpaquePorts, dropped = resolvePorts(text, pod)
		// A namespace's list may name ports that not all of its pods have.
		if _, own := a.Own[prefix+"opaque-ports"]; own && len(dropped) > 0 {
			warnings = append(warnings, fmt.Sprintf("annotation %sopaque-ports: %.60q is left out: no port of the pod has that name, and it is no number", prefix, dropped[0]))
		}
	}
	warnings = append(warnings, suspects(a.Own)...)
	warnings = append(warnings, out.setNative(a.Pod)...)
	warnings = append(warnings, out.addEnv(a)...)
	out.addTraceLabels(a.Pod, pod.Labels)
	return &out, warnings
}

// setter changes one value; it must not reach through a map or slice of v.
type setter func(v *Values, text string) error

// overrides by annotation; the order between them does not matter.
var overrides = map[string]setter{
	inject:                          func(v *Values, s string) error { v.Proxy.IsIngress = v.Proxy.IsIngress || s == "ingress"; return nil },
	prefix + "proxy-image":          text(func(v *Values) *string { return &v.Proxy.Image.Name }),
	prefix + "proxy-version":        text(func(v *Values) *string { return &v.Proxy.Image.Version }),
	prefix + "image-pull-policy":    text(func(v *Values) *string { return &v.Proxy.Image.PullPolicy }),
	prefix + "control-port":         port(func(v *Values) *int32 { return &v.Proxy.Ports.Control }),
	prefix + "inbound-port":         port(func(v *Values) *int32 { return &v.Proxy.Ports.Inbound }),
	prefix + "admin-port":           port(func(v *Values) *int32 { return &v.Proxy.Ports.Admin }),
	prefix + "outbound-port":        port(func(v *Values) *int32 { return &v.Proxy.Ports.Outbound }),
	prefix + "proxy-admin-shutdown": onOff(func(v *Values) *bool { return &v.Proxy.EnableShutdownEndpoint }),
	prefix + "proxy-await":          onOff(func(v *Values) *bool { return &v.Proxy.Await }),

	prefix + "proxy-log-level":                                text(func(v *Values) *string { return &v.Proxy.LogLevel }),
	prefix + "proxy-log-format":                               text(func(v *Values) *string { return &v.Proxy.LogFormat }),
	prefix + "proxy-log-http-headers":                         text(func(v *Values) *string { return &v.Proxy.LogHTTPHeaders }),
	prefix + "access-log":                                     text(func(v *Values) *string { return &v.Proxy.AccessLog }),
	prefix + "proxy-require-identity-inbound-ports":           text(func(v *Values) *string { return &v.Proxy.RequireIdentityOnInboundPorts }),
	prefix + "skip-inbound-ports":                             text(func(v *Values) *string { return &v.ProxyInit.IgnoreInboundPorts }),
	prefix + "skip-outbound-ports":                            text(func(v *Values) *string { return &v.ProxyInit.IgnoreOutboundPorts }),
	prefix + "skip-subnets":                                   text(func(v *Values) *string { return &v.ProxyInit.SkipSubnets }),
	prefix + "proxy-metrics-hostname-labels":                  boolean(func(v *Values) *bool { return &v.Proxy.Metrics.HostnameLabels }),
	prefix + "enable-gateway":                                 boolean(func(v *Values) *bool { return &v.Proxy.IsGateway }),
	prefix + "enable-external-profiles":                       boolean(func(v *Values) *bool { return &v.Proxy.EnableExternalProfiles }),
	prefix + "proxy-outbound-connect-timeout":                 duration(time.Millisecond, "ms", func(v *Values) *string { return &v.Proxy.OutboundConnectTimeout }),
	prefix + "proxy-inbound-connect-timeout":                  duration(time.Millisecond, "ms", func(v *Values) *string { return &v.Proxy.InboundConnectTimeout }),
	prefix + "shutdown-grace-period":                          duration(time.Millisecond, "ms", func(v *Values) *string { return &v.Proxy.ShutdownGracePeriod }),
	prefix + "proxy-cpu-request":                              cpu(func(r *Resources) *string { return &r.CPU.Request }, func(r *Runtime) *int64 { return &r.Workers.Minimum }),
	prefix + "proxy-cpu-limit":                                cpu(func(r *Resources) *string { return &r.CPU.Limit }, func(r *Runtime) *int64 { return &r.Workers.Maximum }),
	prefix + "proxy-cpu-ratio-limit":                          cpuRatio,
	prefix + "proxy-memory-request":                           quantity(func(r *Resources) *string { return &r.Memory.Request }),
	prefix + "proxy-memory-limit":                             quantity(func(r *Resources) *string { return &r.Memory.Limit }),
	prefix + "proxy-ephemeral-storage-request":                quantity(func(r *Resources) *string { return &r.EphemeralStorage.Request }),
	prefix + "proxy-ephemeral-storage-limit":                  quantity(func(r *Resources) *string { return &r.EphemeralStorage.Limit }),
	prefix + "proxy-uid":                                      number(func(v *Values) *int64 { return &v.Proxy.UID }),
	prefix + "proxy-gid":                                      number(func(v *Values) *int64 { return &v.Proxy.GID }),
	prefix + "default-inbound-policy":                         inboundPolicy,
	prefix + "close-wait-timeout":                             closeWait,
	prefix + "debug-image":                                    text(func(v *Values) *string { return &v.DebugContainer.Image.Name }),
	prefix + "debug-image-version":                            text(func(v *Values) *string { return &v.DebugContainer.Image.Version }),
	prefix + "debug-image-pull-policy":                        text(func(v *Values) *string { return &v.DebugContainer.Image.PullPolicy }),
	prefixAlpha + "proxy-wait-before-exit-seconds":            waitBeforeExit,
	prefix + "proxy-disable-inbound-protocol-detect-timeout":  boolean(func(v *Values) *bool { return &v.Proxy.DisableInboundProtocolDetectTimeout }),
	prefix + "proxy-disable-outbound-protocol-detect-timeout": boolean(func(v *Values) *bool { return &v.Proxy.DisableOutboundProtocolDetect }),
	prefix + "proxy-inbound-discovery-cache-unused-timeout":   duration(time.Second, "s", func(v *Values) *string { return &v.Proxy.InboundDiscoveryCacheUnusedTimeout }),
	prefix + "proxy-outbound-discovery-cache-unused-timeout":  duration(time.Second, "s", func(v *Values) *string { return &v.Proxy.OutboundDiscoveryCacheUnusedTimeout }),
}

func text(at func(*Values) *string) setter {
	return func(v *Values, s string) error { *at(v) = s; return nil }
}

func boolean(at func(*Values) *bool) setter {
	return func(v *Values, s string) error {
		b, err := strconv.ParseBool(s)
		if err != nil {
			return fmt.Errorf("%.60q is not a boolean", s)
		}
		*at(v) = b
		return nil
	}
}

func onOff(at func(*Values) *bool) setter {
	return func(v *Values, s string) error {
		if s != "enabled" && s != "disabled" {
			return fmt.Errorf("%.60q is neither enabled nor disabled", s)
		}
		*at(v) = s == "enabled"
		return nil
	}
}

func port(at func(*Values) *int32) setter {
	return func(v *Values, s string) error {
		n, err := strconv.ParseUint(s, 10, 16)
		if err != nil || n == 0 {
			return fmt.Errorf("%.60q is not a port number", s)
		}
		*at(v) = int32(n)
		return nil
	}
}

func number(at func(*Values) *int64) setter {
	return func(v *Values, s string) error {
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil {
			return fmt.Errorf("%.60q is not a number", s)
		}
		*at(v) = n
		return nil
	}
}

// duration writes a Go duration as the proxy reads it, cut to whole units.
func duration(unit time.Duration, suffix string, at func(*Values) *string) setter {
	return func(v *Values, s string) error {
		d, err := time.ParseDuration(s)
		if err != nil {
			return fmt.Errorf("%.60q is not a duration", s)
		}
		*at(v) = strconv.FormatInt(int64(d/unit), 10) + suffix
		return nil
	}
}

func quantity(at func(*Resources) *string) setter {
	return func(v *Values, s string) error {
		if _, err := parseQuantity(s); err != nil {
			return err
		}
		*at(&v.Proxy.Resources) = s
		return nil
	}
}

// cpu sets a resource and the number of workers that fits: whole cores,
// rounded up.
func cpu(at func(*Resources) *string, workers func(*Runtime) *int64) setter {
	return func(v *Values, s string) error {
		q, err := parseQuantity(s)
		if err != nil {
			return err
		}
		*at(&v.Proxy.Resources) = s
		*workers(&v.Proxy.Runtime) = q.Value()
		return nil
	}
}

// sane are quantities that Kubernetes' parser reads at once; with an exponent
// of nine digits it takes minutes.
var sane = regexp.MustCompile(`^[+-]?[0-9.]{1,30}([numkKMGTPEi]{0,2}|[eE][+-]?[0-9]{1,2})$`)

func parseQuantity(s string) (resource.Quantity, error) {
	if !sane.MatchString(s) {
		return resource.Quantity{}, fmt.Errorf("%.40q is not a quantity", s)
	}
	q, err := resource.ParseQuantity(s)
	if err != nil || q.Sign() < 0 {
		return resource.Quantity{}, fmt.Errorf("%.60q is not a quantity", s)
	}
	return q, nil
}

func cpuRatio(v *Values, s string) error {
	f, err := strconv.ParseFloat(s, 64)
	if err != nil || !(f > 0 && f < 1) { // not-a-number fails both
		return fmt.Errorf("%.60q is not between 0 and 1", s)
	}
	v.Proxy.Runtime.Workers.MaximumCPURatio = f
	return nil
}

var inboundPolicies = []string{
	"all-unauthenticated", "all-authenticated", "cluster-unauthenticated", "cluster-authenticated", "deny", "audit",
}

func inboundPolicy(v *Values, s string) error {
	if !slices.Contains(inboundPolicies, s) {
		return fmt.Errorf("%.60q is no default policy", s)
	}
	v.Proxy.DefaultInboundPolicy = s
	return nil
}

func closeWait(v *Values, s string) error {
	d, err := time.ParseDuration(s)
	if err != nil {
		return fmt.Errorf("%.60q is not a duration", s)
	}
	v.ProxyInit.CloseWaitTimeoutSecs = int64(d / time.Second)
	return nil
}

func waitBeforeExit(v *Values, s string) error {
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		return fmt.Errorf("%.60q is not a number of seconds", s)
	}
	v.Proxy.WaitBeforeExitSeconds = n
	return nil
}

// setNative reads the stable name first; if it is there, even with nonsense,
// the older names do not count.
func (v *Values) setNative(annotations map[string]string) []string {
	for _, p := range []string{prefix, prefixBeta, prefixAlpha} {
		s, ok := annotations[p+native]
		if !ok {
			continue
		}
		if err := boolean(func(v *Values) *bool { return &v.Proxy.NativeSidecar })(v, s); err != nil {
			return []string{fmt.Sprintf("annotation %s is ignored: %s", p+native, err)}
		}
		return nil
	}
	return nil
}

// addTraceLabels names the service in traces: by the recommended labels, over
// which the pod's own OpenTelemetry annotations win.
func (v *Values) addTraceLabels(annotations, labels map[string]string) {
	if !v.Proxy.Tracing.Enabled {
		return
	}
	out := maps.Clone(v.Proxy.Tracing.Labels)
	if out == nil {
		out = map[string]string{}
	}
	for _, key := range []string{"app.kubernetes.io/instance", "app.kubernetes.io/name"} {
		if name := labels[key]; name != "" {
			out["service.name"] = name
			break
		}
	}
	for key, value := range annotations {
		if attribute, ok := strings.CutPrefix(key, otelPrefix); ok && attribute != "" {
			out[attribute] = value
		}
	}
	v.Proxy.Tracing.Labels = out
}
