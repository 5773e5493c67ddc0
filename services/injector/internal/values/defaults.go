package values

// Default is what the chart has, but for the images, which are ours. version
// is used where no version of an image is given.
func Default(version string) *Values {
	v := &Values{
		LinkerdVersion:  version,
		ClusterDomain:   "cluster.local",
		ClusterNetworks: "10.0.0.0/8,100.64.0.0/10,172.16.0.0/12,192.168.0.0/16,fd00::/8",
		ImagePullPolicy: "IfNotPresent",
		DisableIPv6:     true,
		Identity:        Identity{ServiceAccountTokenProjection: true},
		Proxy: Proxy{
			Image:                               Image{Name: "ghcr.io/weftmesh/proxy"},
			Await:                               true,
			DefaultInboundPolicy:                "all-unauthenticated",
			GID:                                 -1,
			UID:                                 2102,
			Inbound:                             keepAlive(),
			Outbound:                            keepAlive(),
			InboundConnectTimeout:               "100ms",
			OutboundConnectTimeout:              "1000ms",
			InboundDiscoveryCacheUnusedTimeout:  "90s",
			OutboundDiscoveryCacheUnusedTimeout: "5s",
			LivenessProbe:                       Probe{InitialDelaySeconds: 10, TimeoutSeconds: 1},
			ReadinessProbe:                      Probe{InitialDelaySeconds: 2, TimeoutSeconds: 1},
			StartupProbe:                        Probe{PeriodSeconds: 1, FailureThreshold: 120},
			LogFormat:                           "plain",
			LogHTTPHeaders:                      "off",
			LogLevel:                            "warn,linkerd=info,hickory=error",
			NativeSidecar:                       true,
			OpaquePorts:                         "25,587,3306,4444,5432,6379,9300,11211",
			Ports:                               Ports{Admin: 4191, Control: 4190, Inbound: 4143, Outbound: 4140},
			Tracing:                             Tracing{TraceServiceName: "linkerd-proxy"},
		},
		ProxyInit: ProxyInit{
			IgnoreInboundPorts: "4567,4568", IgnoreOutboundPorts: "4567,4568",
			IptablesMode: "nft", RunAsUser: 65534, RunAsGroup: 65534,
		},
		NetworkValidator: NetworkValidator{LogFormat: "plain", LogLevel: "debug", Timeout: "10s"},
		DebugContainer:   DebugContainer{Image: Image{Name: "ghcr.io/weftmesh/debug"}},
	}
	v.Proxy.Control.Streams.InitialTimeout = "3s"
	v.Proxy.Control.Streams.IdleTimeout = "5m"
	v.Proxy.Control.Streams.Lifetime = "1h"
	v.Proxy.Runtime.Workers.Minimum = 1
	v.ProxyInit.XtMountPath.MountPath = "/run"
	v.ProxyInit.XtMountPath.Name = "linkerd-proxy-init-xtables-lock"
	return v
}

func keepAlive() Tuning {
	return Tuning{"server": {"http2": {"keepAliveInterval": "10s", "keepAliveTimeout": "3s"}}}
}
