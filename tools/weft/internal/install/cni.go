package install

import (
	"github.com/spf13/cobra"

	"github.com/weftmesh/weft/charts"
	"github.com/weftmesh/weft/services/kit/build"
	"github.com/weftmesh/weft/tools/weft/internal/kube"
	"github.com/weftmesh/weft/tools/weft/internal/manifest"
	"github.com/weftmesh/weft/tools/weft/internal/usage"
)

// cniFlags are those of install-cni. Linkerd's -v for --linkerd-version is taken
// by --verbose.
func cniFlags() []manifest.Flag {
	return []manifest.Flag{
		{Name: "linkerd-version", Help: "the version of the image", Read: manifest.Text, Values: []string{"image.version"}, Instead: "cni-image-version"},
		{Name: "registry", Help: "where the image is ($LINKERD_DOCKER_REGISTRY)", Read: registry, Values: []string{"registry"}},
		{Name: "proxy-uid", Help: "the user id that proxies run as", Read: manifest.Number, Values: []string{"proxyUID"}},
		{Name: "proxy-gid", Help: "the group id that proxies run as; -1 means that it does not matter", Read: manifest.Number, Values: []string{"proxyGID"}},
		{Name: "inbound-port", Help: "the proxy's port for what comes in", Read: manifest.Port, Values: []string{"inboundProxyPort"}},
		{Name: "outbound-port", Help: "the proxy's port for what goes out", Read: manifest.Port, Values: []string{"outboundProxyPort"}},
		{Name: "control-port", Help: "the proxy's port for taps", Read: manifest.Port, Values: []string{"proxyControlPort"}},
		{Name: "admin-port", Help: "the proxy's port for metrics and readiness", Read: manifest.Port, Values: []string{"proxyAdminPort"}},
		{Name: "skip-inbound-ports", Help: "ports and ranges that reach applications without the proxy", Read: manifest.Ports, Values: []string{"ignoreInboundPorts"}},
		{Name: "skip-outbound-ports", Help: "ports and ranges that applications reach without the proxy", Read: manifest.Ports, Values: []string{"ignoreOutboundPorts"}},
		{Name: "skip-subnets", Help: "networks that are reached without the proxy", Read: manifest.Subnets, Values: []string{"skipSubnets"}},
		{Name: "redirect-ports", Help: "ports that are redirected to the proxy (default: all)", Read: manifest.Ports, Values: []string{"portsToRedirect"}},
		{Name: "cni-image", Help: "the plugin's image, without its version", Read: manifest.Text, Values: []string{"image.name"}},
		{Name: "cni-image-version", Help: "the version of the plugin's image", Read: manifest.Text, Values: []string{"image.version"}},
		{Name: "cni-log-level", Help: "what the plugin logs", Read: manifest.Text, Values: []string{"logLevel"}},
		{Name: "dest-cni-net-dir", Help: "where nodes have the configuration of their network", Read: manifest.Text, Values: []string{"destCNINetDir"}},
		{Name: "dest-cni-bin-dir", Help: "where nodes have CNI plugins", Read: manifest.Text, Values: []string{"destCNIBinDir"}},
		{Name: "priority-class-name", Help: "the priority class of the plugin's pods", Read: manifest.Text, Values: []string{"priorityClassName"}},
		{Name: "use-wait-flag", Help: "accepted for Linkerd's sake: there is no lock to wait for", Read: manifest.Truth, Switch: true, Values: []string{"useWaitFlag"}},
	}
}

// CNICommand returns `weft install-cni`.
func CNICommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "install-cni",
		Short: "Print the manifests of the CNI plugin, which redirects pods' traffic without an init container",
		Long: `Print the manifests of the CNI plugin, for kubectl to apply, before a control plane
that is installed with --linkerd-cni-enabled. With it, pods need no right to
change their network.`,
		Example: `  weft install-cni | kubectl apply -f -
  weft install --linkerd-cni-enabled | kubectl apply -f -`,
		Args: usage.NoArgs,
	}
	asked := bind(cmd, cniFlags())
	format := manifest.BindFormat(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		values, err := asked.values(nil)
		if err != nil {
			return err
		}
		docs, err := render(charts.CNI, values, charts.Options{Namespace: kube.From(cmd).CNI, Version: build.Version()})
		if err != nil {
			return err
		}
		return manifest.Write(cmd.OutOrStdout(), *format, docs)
	}
	return cmd
}
