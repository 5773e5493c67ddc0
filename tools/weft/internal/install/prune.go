package install

import (
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/weftmesh/weft/charts"
	"github.com/weftmesh/weft/services/kit/build"
	"github.com/weftmesh/weft/tools/weft/internal/kube"
	"github.com/weftmesh/weft/tools/weft/internal/manifest"
	"github.com/weftmesh/weft/tools/weft/internal/usage"
)

// PruneCommand returns `weft prune`.
func PruneCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "prune",
		Short: "Print the objects of the control plane that this version does not have any more",
		Long: `Print the objects that an earlier version, or earlier settings, made and that
` + "`weft upgrade`" + ` does not print any more, for kubectl to delete.`,
		Example: `  weft prune | kubectl delete -f -`,
		Args:    usage.NoArgs,
	}
	format := manifest.BindFormat(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		ctx := cmd.Context()
		client, err := kube.From(cmd).Connect()
		if err != nil {
			return err
		}
		how := charts.Options{Namespace: client.Namespace(), Version: build.Version(), Upgrade: true, Lookup: lookup(ctx, client)}
		if how.KubeVersion, err = kubeVersion(ctx, client); err != nil {
			return err
		}
		earlier, err := overrides(how.Lookup, client.Namespace())
		if err != nil {
			return err
		}
		values, err := withCertificates(how.Lookup, client.Namespace(), earlier, nil)
		if err != nil {
			return err
		}
		wanted := map[string]bool{"/Secret/" + client.Namespace() + "/" + overridesName: true}
		rendered, err := render(charts.ControlPlane, values, how)
		if err != nil {
			return err
		}
		crds, err := renderCRDs(values, how)
		if err != nil {
			return err
		}
		for _, d := range append(rendered, crds...) {
			wanted[key(d.Object)] = true
		}
		all, err := belongings(ctx, client)
		if err != nil {
			return err
		}
		var docs []manifest.Document
		for _, obj := range all {
			if ours(&obj) && !wanted[key(obj.Object)] {
				docs = append(docs, stub(&obj))
			}
		}
		return manifest.Write(cmd.OutOrStdout(), *format, docs)
	}
	return cmd
}

// ours says whether this command or a chart of ours made an object: what others
// made, as cert-manager its Secrets, is none of our business.
func ours(obj *unstructured.Unstructured) bool {
	return strings.HasPrefix(obj.GetAnnotations()["linkerd.io/created-by"], "weft/")
}
