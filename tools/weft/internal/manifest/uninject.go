package manifest

import (
	"github.com/spf13/cobra"

	"github.com/weftmesh/weft/services/injector/inject"
)

// UninjectCommand returns `weft uninject`.
func UninjectCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "uninject FILE|DIRECTORY|URL|-",
		Short: "Take the proxy out of manifests",
		Long: `Take the proxy, and the annotations and labels that begin with linkerd.io, out of
manifests, and write them to standard output. Annotations of config.linkerd.io
stay, since somebody may have written them; linkerd.io/inject: disabled stays, too.`,
		Example: `  kubectl get deploy -o yaml | weft uninject - | kubectl apply -f -`,
		Args:    oneSource,
	}
	format := BindFormat(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		docs, err := Read(cmd.Context(), args[0], cmd.InOrStdin())
		if err != nil {
			return err
		}
		done, reports, err := each(docs, inject.Uninject)
		if err != nil {
			return err
		}
		reportUninject(cmd.ErrOrStderr(), reports)
		return Write(cmd.OutOrStdout(), *format, done)
	}
	return cmd
}
