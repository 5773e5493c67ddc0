package install

import (
	"context"
	"slices"

	"github.com/spf13/cobra"

	"github.com/weftmesh/weft/services/kit/say"
	"github.com/weftmesh/weft/tools/weft/internal/kube"
	"github.com/weftmesh/weft/tools/weft/internal/manifest"
	"github.com/weftmesh/weft/tools/weft/internal/usage"
)

// UninstallCommand returns `weft uninstall`.
func UninstallCommand() *cobra.Command {
	var force bool
	cmd := &cobra.Command{
		Use:   "uninstall",
		Short: "Print what is to be deleted so that the control plane is gone",
		Long: `Print the objects of the control plane, for kubectl to delete, the kinds that it
works with among them: with those go all policies.

While pods have a proxy it refuses, and names them: without a control plane their
proxies lose their certificates within a day, and cannot be started again.`,
		Example: `  weft uninstall | kubectl delete -f -`,
		Args:    usage.NoArgs,
	}
	cmd.Flags().BoolVarP(&force, "force", "f", false, "print it even while pods have a proxy")
	format := manifest.BindFormat(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		client, err := kube.From(cmd).Connect()
		if err != nil {
			return err
		}
		if !force {
			if err := unused(cmd.Context(), client); err != nil {
				return err
			}
		}
		all, err := belongings(cmd.Context(), client)
		if err != nil {
			return err
		}
		if len(all) == 0 {
			return &say.Problem{
				What: "there is nothing to uninstall", Why: "no object in the cluster is of a control plane in namespace " + client.Namespace(),
				Next: "name another namespace with --linkerd-namespace, or another cluster with --context",
			}
		}
		docs := make([]manifest.Document, len(all))
		for i := range all {
			docs[i] = stub(&all[i])
		}
		return manifest.Write(cmd.OutOrStdout(), *format, docs)
	}
	return cmd
}

// unused makes sure that no pod but the control plane's has a proxy.
func unused(ctx context.Context, client *kube.Client) error {
	ns := client.Namespace()
	pods, err := client.List(ctx, kube.Pods, "", "linkerd.io/control-plane-ns="+ns+",!linkerd.io/control-plane-component")
	if err != nil {
		return err
	}
	var names []string
	for _, pod := range pods {
		if !over(&pod) && pod.GetNamespace() != ns && hasProxy(&pod) {
			names = append(names, pod.GetNamespace()+"/"+pod.GetName())
		}
	}
	if len(names) == 0 {
		return nil
	}
	slices.Sort(names)
	return &say.Problem{
		What: "there are proxies of this control plane in " + count(len(names), "pod", "pods"),
		Why:  "without it they lose their certificates, and cannot be started again: " + some(names),
		Next: "take the proxies out first: kubectl get deploy -n NAMESPACE -o yaml | weft uninject - | kubectl apply -f -\nand the annotation linkerd.io/inject from their namespaces; --force goes on regardless",
	}
}
