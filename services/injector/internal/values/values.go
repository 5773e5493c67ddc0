// Package values holds the settings that an injected proxy is made from, under
// the names of Linkerd's chart (ConfigMap linkerd-config, key values).
//
// It is pure. A Values that was handed out is never changed: Effective works on
// a copy, so one pod's overrides cannot reach the next.
package values

import (
	"fmt"
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// Values are the parts of the chart's values that the injector reads.
type Values struct {
	LinkerdVersion          string           `json:"linkerdVersion"`
	ClusterDomain           string           `json:"clusterDomain"`
	ClusterNetworks         string           `json:"clusterNetworks"`
	IdentityTrustDomain     string           `json:"identityTrustDomain"`
	IdentityTrustAnchorsPEM string           `json:"identityTrustAnchorsPEM"`
	ImagePullPolicy         string           `json:"imagePullPolicy"`
	DisableIPv6             bool             `json:"disableIPv6"`
	CNIEnabled              bool             `json:"cniEnabled"`
	Identity                Identity         `json:"identity"`
	Proxy                   Proxy            `json:"proxy"`
	ProxyInit               ProxyInit        `json:"proxyInit"`
	NetworkValidator        NetworkValidator `json:"networkValidator"`
	DebugContainer          DebugContainer   `json:"debugContainer"`
}

// Identity says where a proxy's token comes from.
type Identity struct {
	ServiceAccountTokenProjection bool `json:"serviceAccountTokenProjection"`
}

// Image is a container image in two parts.
type Image struct {
	Name       string `json:"name"`
	Version    string `json:"version"`
	PullPolicy string `json:"pullPolicy"`
}

// Proxy is the sidecar.
type Proxy struct {
	Image                               Image                   `json:"image"`
	AccessLog                           string                  `json:"accessLog"`
	AdditionalEnv                       []corev1.EnvVar         `json:"additionalEnv"`
	ExperimentalEnv                     []corev1.EnvVar         `json:"experimentalEnv"`
	Await                               bool                    `json:"await"`
	Control                             Control                 `json:"control"`
	Cores                               int64                   `json:"cores"`
	DefaultInboundPolicy                string                  `json:"defaultInboundPolicy"`
	DisableInboundProtocolDetectTimeout bool                    `json:"disableInboundProtocolDetectTimeout"`
	DisableOutboundProtocolDetect       bool                    `json:"disableOutboundProtocolDetectTimeout"`
	EnableExternalProfiles              bool                    `json:"enableExternalProfiles"`
	EnableShutdownEndpoint              bool                    `json:"enableShutdownEndpoint"`
	GID                                 int64                   `json:"gid"`
	UID                                 int64                   `json:"uid"`
	Inbound                             Tuning                  `json:"inbound"`
	Outbound                            Tuning                  `json:"outbound"`
	InboundConnectTimeout               string                  `json:"inboundConnectTimeout"`
	OutboundConnectTimeout              string                  `json:"outboundConnectTimeout"`
	InboundDiscoveryCacheUnusedTimeout  string                  `json:"inboundDiscoveryCacheUnusedTimeout"`
	OutboundDiscoveryCacheUnusedTimeout string                  `json:"outboundDiscoveryCacheUnusedTimeout"`
	IsGateway                           bool                    `json:"isGateway"`
	IsIngress                           bool                    `json:"isIngress"`
	LivenessProbe                       Probe                   `json:"livenessProbe"`
	ReadinessProbe                      Probe                   `json:"readinessProbe"`
	StartupProbe                        Probe                   `json:"startupProbe"`
	LogFormat                           string                  `json:"logFormat"`
	LogHTTPHeaders                      string                  `json:"logHTTPHeaders"`
	LogLevel                            string                  `json:"logLevel"`
	Metrics                             Metrics                 `json:"metrics"`
	NativeSidecar                       bool                    `json:"nativeSidecar"`
	OpaquePorts                         string                  `json:"opaquePorts"`
	Ports                               Ports                   `json:"ports"`
	RequireIdentityOnInboundPorts       string                  `json:"requireIdentityOnInboundPorts"`
	RequireTLSOnInboundPorts            string                  `json:"requireTLSOnInboundPorts"`
	Resources                           Resources               `json:"resources"`
	Runtime                             Runtime                 `json:"runtime"`
	SecurityContext                     *corev1.SecurityContext `json:"securityContext"`
	ShutdownGracePeriod                 string                  `json:"shutdownGracePeriod"`
	Tracing                             Tracing                 `json:"tracing"`
	WaitBeforeExitSeconds               uint64                  `json:"waitBeforeExitSeconds"`
}

// Tuning is scope, protocol, parameter: server.http2.keepAliveInterval.
type Tuning map[string]map[string]map[string]any

// Control bounds the proxy's streams to the control plane.
type Control struct {
	Streams struct {
		InitialTimeout string `json:"initialTimeout"`
		IdleTimeout    string `json:"idleTimeout"`
		Lifetime       string `json:"lifetime"`
	} `json:"streams"`
}

// Metrics is what the proxy measures.
type Metrics struct {
	HostnameLabels bool `json:"hostnameLabels"`
}

// Probe is the timing of one of the kubelet's probes.
type Probe struct {
	InitialDelaySeconds int32 `json:"initialDelaySeconds"`
	PeriodSeconds       int32 `json:"periodSeconds"`
	TimeoutSeconds      int32 `json:"timeoutSeconds"`
	FailureThreshold    int32 `json:"failureThreshold"`
}

// Ports are the proxy's own.
type Ports struct {
	Admin    int32 `json:"admin"`
	Control  int32 `json:"control"`
	Inbound  int32 `json:"inbound"`
	Outbound int32 `json:"outbound"`
}

// Resources are Kubernetes quantities; empty means unset.
type Resources struct {
	CPU              Bounds `json:"cpu"`
	Memory           Bounds `json:"memory"`
	EphemeralStorage Bounds `json:"ephemeral-storage"`
}

// Bounds of one resource.
type Bounds struct {
	Limit   string `json:"limit"`
	Request string `json:"request"`
}

// Runtime sizes the proxy's worker threads.
type Runtime struct {
	Workers struct {
		Minimum         int64   `json:"minimum"`
		Maximum         int64   `json:"maximum"`         // 0 means unset
		MaximumCPURatio float64 `json:"maximumCPURatio"` // of the machine's cores; 0 means unset
	} `json:"workers"`
}

// Tracing is where the proxy sends spans.
type Tracing struct {
	Enabled          bool              `json:"enabled"`
	TraceServiceName string            `json:"traceServiceName"`
	Labels           map[string]string `json:"labels"`
	Collector        struct {
		Endpoint     string `json:"endpoint"`
		MeshIdentity struct {
			ServiceAccountName string `json:"serviceAccountName"`
			Namespace          string `json:"namespace"`
		} `json:"meshIdentity"`
	} `json:"collector"`
}

// ProxyInit redirects a pod's traffic to its proxy.
type ProxyInit struct {
	CloseWaitTimeoutSecs int64  `json:"closeWaitTimeoutSecs"`
	IgnoreInboundPorts   string `json:"ignoreInboundPorts"`
	IgnoreOutboundPorts  string `json:"ignoreOutboundPorts"`
	IptablesMode         string `json:"iptablesMode"`
	LogFormat            string `json:"logFormat"`
	LogLevel             string `json:"logLevel"`
	Privileged           bool   `json:"privileged"`
	RunAsRoot            bool   `json:"runAsRoot"`
	RunAsUser            int64  `json:"runAsUser"`
	RunAsGroup           int64  `json:"runAsGroup"`
	SkipSubnets          string `json:"skipSubnets"`
	XtMountPath          struct {
		MountPath string `json:"mountPath"`
		Name      string `json:"name"`
	} `json:"xtMountPath"`
}

// NetworkValidator proves the redirection where a CNI plugin makes it.
type NetworkValidator struct {
	ConnectAddr string `json:"connectAddr"`
	ListenAddr  string `json:"listenAddr"`
	LogFormat   string `json:"logFormat"`
	LogLevel    string `json:"logLevel"`
	Timeout     string `json:"timeout"`
}

// DebugContainer is an optional container with network tools.
type DebugContainer struct {
	Image Image `json:"image"`
}

// Parse reads a values file over the defaults, so that a file of an older
// release, which lacks a newer section, still works.
func Parse(b []byte, version string) (*Values, error) {
	v := Default(version)
	if err := yaml.Unmarshal(b, v); err != nil {
		return nil, fmt.Errorf("parsing values: %w", err)
	}
	if v.LinkerdVersion == "" {
		v.LinkerdVersion = version
	}
	defaults := Default(version)
	for _, i := range []struct{ image, otherwise *Image }{
		{&v.Proxy.Image, &defaults.Proxy.Image}, {&v.DebugContainer.Image, &defaults.DebugContainer.Image},
	} {
		if i.image.Name == "" {
			i.image.Name = i.otherwise.Name
		}
	}
	if err := v.check(); err != nil {
		return nil, fmt.Errorf("values: %w", err)
	}
	return v, nil
}

// check refuses what could never make a working pod.
func (v *Values) check() error {
	for cidr := range strings.SplitSeq(v.ClusterNetworks, ",") {
		if _, err := netip.ParsePrefix(strings.TrimSpace(cidr)); err != nil {
			return fmt.Errorf("clusterNetworks: %q is not a CIDR", cidr)
		}
	}
	if m := v.ProxyInit.IptablesMode; m != "nft" && m != "legacy" {
		return fmt.Errorf("proxyInit.iptablesMode: %q is neither nft nor legacy", m)
	}
	r := v.Proxy.Resources
	for _, text := range []string{
		r.CPU.Limit, r.CPU.Request, r.Memory.Limit, r.Memory.Request, r.EphemeralStorage.Limit, r.EphemeralStorage.Request,
	} {
		if text == "" {
			continue
		}
		if _, err := parseQuantity(text); err != nil {
			return fmt.Errorf("proxy.resources: %w", err)
		}
	}
	return nil
}

// TrustDomain is what identities end in.
func (v *Values) TrustDomain() string {
	if v.IdentityTrustDomain != "" {
		return v.IdentityTrustDomain
	}
	return v.ClusterDomain
}

// Reference is an image's name and version; ours where it has none.
func (v *Values) Reference(i Image) string { return i.Name + ":" + v.Version(i) }

// Version is an image's version; the mesh's where it has none.
func (v *Values) Version(i Image) string {
	if i.Version != "" {
		return i.Version
	}
	return v.LinkerdVersion
}

// PullPolicy is an image's policy; the mesh's where it has none.
func (v *Values) PullPolicy(i Image) corev1.PullPolicy {
	if i.PullPolicy != "" {
		return corev1.PullPolicy(i.PullPolicy)
	}
	return corev1.PullPolicy(v.ImagePullPolicy)
}
