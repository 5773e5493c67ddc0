package manifest

const config = "config.linkerd.io/"

// ProxyFlags set how a proxy runs. install and upgrade take them for the mesh,
// inject for the pods in a manifest.
func ProxyFlags() []Flag {
	return []Flag{
		{
			Name: "image-pull-policy", Help: "when nodes fetch images: Always, IfNotPresent or Never", Read: OneOf("Always", "IfNotPresent", "Never"),
			Values: []string{"imagePullPolicy", "proxy.image.pullPolicy", "debugContainer.image.pullPolicy"}, Annotation: config + "image-pull-policy",
		},
		{Name: "proxy-image", Help: "the proxy's image, without its version", Read: Text, Values: []string{"proxy.image.name"}, Annotation: config + "proxy-image"},
		{Name: "proxy-image-version", Help: "the version of the proxy's image", Read: Text, Values: []string{"proxy.image.version"}, Annotation: config + "proxy-version"},
		{Name: "proxy-version", Help: "the version of the proxy's image", Read: Text, Values: []string{"proxy.image.version"}, Annotation: config + "proxy-version", Instead: "proxy-image-version"},
		{Name: "inbound-port", Help: "the proxy's port for what comes in", Read: Port, Values: []string{"proxy.ports.inbound"}, Annotation: config + "inbound-port"},
		{Name: "outbound-port", Help: "the proxy's port for what goes out", Read: Port, Values: []string{"proxy.ports.outbound"}, Annotation: config + "outbound-port"},
		{Name: "control-port", Help: "the proxy's port for taps", Read: Port, Values: []string{"proxy.ports.control"}, Annotation: config + "control-port"},
		{Name: "admin-port", Help: "the proxy's port for metrics and readiness", Read: Port, Values: []string{"proxy.ports.admin"}, Annotation: config + "admin-port"},
		{Name: "skip-inbound-ports", Help: "ports and ranges that reach the application without the proxy", Read: Ports, Values: []string{"proxyInit.ignoreInboundPorts"}, Annotation: config + "skip-inbound-ports"},
		{Name: "skip-outbound-ports", Help: "ports and ranges that the application reaches without the proxy", Read: Ports, Values: []string{"proxyInit.ignoreOutboundPorts"}, Annotation: config + "skip-outbound-ports"},
		{Name: "skip-subnets", Help: "networks that are reached without the proxy", Read: Subnets, Values: []string{"proxyInit.skipSubnets"}, Annotation: config + "skip-subnets"},
		{Name: "proxy-uid", Help: "the user id that the proxy runs as", Read: Number, Values: []string{"proxy.uid"}, Annotation: config + "proxy-uid"},
		{Name: "proxy-gid", Help: "the group id that the proxy runs as; -1 leaves it to the image", Read: Number, Values: []string{"proxy.gid"}, Annotation: config + "proxy-gid"},
		{Name: "proxy-log-level", Help: "what the proxy logs", Read: Text, Values: []string{"proxy.logLevel"}, Annotation: config + "proxy-log-level"},
		{Name: "proxy-cpu-request", Help: "CPU that is kept free for the proxy", Read: Quantity, Values: []string{"proxy.resources.cpu.request"}, Annotation: config + "proxy-cpu-request"},
		{Name: "proxy-cpu-limit", Help: "CPU that the proxy may use at most", Read: Quantity, Values: []string{"proxy.resources.cpu.limit"}, Annotation: config + "proxy-cpu-limit"},
		{Name: "proxy-memory-request", Help: "memory that is kept free for the proxy", Read: Quantity, Values: []string{"proxy.resources.memory.request"}, Annotation: config + "proxy-memory-request"},
		{Name: "proxy-memory-limit", Help: "memory that the proxy may use at most", Read: Quantity, Values: []string{"proxy.resources.memory.limit"}, Annotation: config + "proxy-memory-limit"},
		{Name: "proxy-cpu", Help: "CPU that is kept free for the proxy", Read: Quantity, Values: []string{"proxy.resources.cpu.request"}, Annotation: config + "proxy-cpu-request", Instead: "proxy-cpu-request"},
		{Name: "proxy-memory", Help: "memory that is kept free for the proxy", Read: Quantity, Values: []string{"proxy.resources.memory.request"}, Annotation: config + "proxy-memory-request", Instead: "proxy-memory-request"},
		{Name: "enable-external-profiles", Help: "look for ServiceProfiles of names outside the cluster, too", Read: Truth, Switch: true, Values: []string{"proxy.enableExternalProfiles"}, Annotation: config + "enable-external-profiles"},
		{
			Name: "default-inbound-policy", Help: "who may come in where no policy says so: all-unauthenticated, all-authenticated, cluster-unauthenticated, cluster-authenticated, deny or audit",
			Read:   OneOf("all-unauthenticated", "all-authenticated", "cluster-unauthenticated", "cluster-authenticated", "deny", "audit"),
			Values: []string{"proxy.defaultInboundPolicy"}, Annotation: config + "default-inbound-policy",
		},
	}
}

// injectFlags are those of `weft inject` alone.
func injectFlags() []Flag {
	return []Flag{
		{Name: "native-sidecar", Help: "run the proxy as a sidecar that Kubernetes knows as one", Read: Truth, Switch: true, Values: []string{"proxy.nativeSidecar"}, Annotation: config + "proxy-enable-native-sidecar"},
		{
			Name: "wait-before-exit-seconds", Help: "seconds that a pod's proxy stays while the pod ends", Read: Count,
			Values: []string{"proxy.waitBeforeExitSeconds"}, Annotation: "config.alpha.linkerd.io/proxy-wait-before-exit-seconds",
		},
		{Name: "require-identity-on-inbound-ports", Help: "ports that take mTLS only", Read: Ports, Values: []string{"proxy.requireIdentityOnInboundPorts"}, Annotation: config + "proxy-require-identity-inbound-ports"},
		{Name: "opaque-ports", Help: "ports whose protocol is not looked at", Read: Text, Values: []string{"proxy.opaquePorts"}, Annotation: config + "opaque-ports"},
		{Name: "enable-debug-sidecar", Help: "add a container for looking at the pod's traffic", Read: Truth, Switch: true, Annotation: config + "enable-debug-sidecar"},
		{Name: "close-wait-timeout", Help: "how long half-closed connections stay tracked, as 60s", Read: span, Annotation: config + "close-wait-timeout"},
	}
}
