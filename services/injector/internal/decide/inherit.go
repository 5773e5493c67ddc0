package decide

import "strings"

// inherited are the annotations that a pod takes from its namespace, in
// Linkerd's words; without a prefix they are of config.linkerd.io.
var inherited = func() []string {
	out := []string{
		InjectAnnotation,
		"config.alpha.linkerd.io/proxy-wait-before-exit-seconds",
		"config.alpha.linkerd.io/proxy-enable-native-sidecar",
	}
	for _, name := range []string{
		"admin-port", "control-port", "enable-debug-sidecar", "enable-external-profiles", "image-pull-policy",
		"inbound-port", "outbound-port", "pod-inbound-ports", "proxy-cpu-limit", "proxy-cpu-request", "proxy-image",
		"proxy-admin-shutdown", "proxy-log-format", "proxy-log-level", "proxy-log-http-headers", "proxy-memory-limit",
		"proxy-memory-request", "proxy-ephemeral-storage-limit", "proxy-ephemeral-storage-request", "proxy-uid",
		"proxy-gid", "proxy-version", "proxy-require-identity-inbound-ports", "skip-inbound-ports", "opaque-ports",
		"skip-outbound-ports", "proxy-metrics-hostname-labels", "proxy-outbound-connect-timeout",
		"proxy-inbound-connect-timeout", "proxy-await", "default-inbound-policy", "skip-subnets", "access-log",
		"shutdown-grace-period", "proxy-outbound-discovery-cache-unused-timeout",
		"proxy-inbound-discovery-cache-unused-timeout", "proxy-disable-outbound-protocol-detect-timeout",
		"proxy-disable-inbound-protocol-detect-timeout", "proxy-enable-native-sidecar", "proxy-additional-env",
	} {
		out = append(out, "config.linkerd.io/"+name)
	}
	return out
}()

// Configuration are the annotations of config.linkerd.io that a pod may take
// from its namespace, without that prefix.
func Configuration() []string {
	var out []string
	for _, key := range inherited {
		if name, ok := strings.CutPrefix(key, "config.linkerd.io/"); ok {
			out = append(out, name)
		}
	}
	return out
}

// Inherit gives what a pod takes from its namespace: what may be inherited,
// the namespace has and the pod does not have.
func Inherit(own, namespace map[string]string) map[string]string {
	out := map[string]string{}
	for _, key := range inherited {
		value, there := namespace[key]
		if _, has := own[key]; there && !has {
			out[key] = value
		}
	}
	return out
}
