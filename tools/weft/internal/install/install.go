package install

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/weftmesh/weft/charts"
	"github.com/weftmesh/weft/services/kit/build"
	"github.com/weftmesh/weft/tools/weft/internal/kube"
	"github.com/weftmesh/weft/tools/weft/internal/manifest"
	"github.com/weftmesh/weft/tools/weft/internal/usage"
)

type options struct {
	asked       *asked
	crds, alone bool
	format      *manifest.Format
}

// Command returns `weft install`.
func Command() *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:   "install",
		Short: "Print the manifests of a control plane",
		Long: `Print the manifests of a control plane, for kubectl to apply. First come the
kinds that it works with (--crds), then itself.

Without certificates one is made, which is trust anchor and issuer at once and
lives a year. What was asked for is kept in Secret linkerd-config-overrides, so
that ` + "`weft upgrade`" + ` need not be told again.`,
		Example: `  weft install --crds | kubectl apply -f -
  weft install --ha | kubectl apply -f -
  weft install --set proxy.logLevel=debug --values values.yaml | kubectl apply -f -`,
		Args: usage.NoArgs,
	}
	o.asked = bind(cmd, append(firstFlags(), sharedFlags()...))
	o.asked.bindHA(cmd)
	cmd.Flags().BoolVar(&o.crds, "crds", false, "print the kinds that the control plane works with, and nothing else")
	cmd.Flags().BoolVar(&o.alone, "ignore-cluster", false, "ask no cluster: print the manifests of a first installation")
	o.format = manifest.BindFormat(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		docs, err := o.documents(cmd.Context(), kube.From(cmd))
		if err != nil {
			return err
		}
		return manifest.Write(cmd.OutOrStdout(), *o.format, docs)
	}
	return cmd
}

// documents are the manifests of a first installation.
func (o options) documents(ctx context.Context, flags *kube.Flags) ([]manifest.Document, error) {
	values, err := o.asked.values(nil)
	if err != nil {
		return nil, err
	}
	how := charts.Options{Namespace: flags.Mesh, Version: build.Version()}
	if o.alone {
		return o.finish(values, values, how)
	}
	client, err := flags.Connect()
	if err != nil {
		return nil, err
	}
	if how.KubeVersion, err = kubeVersion(ctx, client); err != nil {
		return nil, err
	}
	if o.crds {
		return o.finish(values, values, how)
	}
	crds, err := crdNames(how)
	if err != nil {
		return nil, err
	}
	if err := ready(ctx, client, values, crds); err != nil {
		return nil, err
	}
	how.Lookup = lookup(ctx, client)
	return o.finish(values, withPorts(ctx, client, values), how)
}

// withPorts adds the ports of the API server, where nobody gave them: the
// control plane's own pods reach it past their proxy.
func withPorts(ctx context.Context, client *kube.Client, values Tree) Tree {
	if ports := apiPorts(ctx, client); ports != "" && !has(values, portsPath) {
		return charts.Merge(values, nested(portsPath, ports))
	}
	return values
}

// finish renders what was asked for; given is what a person said of the values,
// and what is remembered.
func (o options) finish(given, values Tree, how charts.Options) ([]manifest.Document, error) {
	if o.crds {
		return renderCRDs(values, how)
	}
	docs, err := render(charts.ControlPlane, values, how)
	if err != nil {
		return nil, err
	}
	if err := credentials(docs, time.Now(), true); err != nil {
		return nil, err
	}
	return remember(docs, how.Namespace, given)
}
