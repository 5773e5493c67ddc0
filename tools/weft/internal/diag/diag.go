// Package diag is `weft diagnostics`: what proxies and the control plane say of
// themselves, asked pod by pod through the API server. A pod that does not
// answer costs its own answer only. It reads and changes nothing.
package diag

import (
	"context"
	"fmt"
	"net"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/weftmesh/weft/tools/weft/internal/kube"
	"github.com/weftmesh/weft/tools/weft/internal/usage"
)

// Door is what the diagnostics ask of Kubernetes.
type Door interface {
	Get(ctx context.Context, gvr schema.GroupVersionResource, ns, name string) (*unstructured.Unstructured, error)
	List(ctx context.Context, gvr schema.GroupVersionResource, ns, selector string) ([]unstructured.Unstructured, error)
	Dial(ctx context.Context, ns, pod string, port int) (net.Conn, error)
}

// connect opens the door that a command's flags name, and says where the
// control plane is.
type connect func(cmd *cobra.Command) (Door, string, error)

func toCluster(cmd *cobra.Command) (Door, string, error) {
	flags := kube.From(cmd)
	client, err := flags.Connect()
	if err != nil {
		return nil, "", err
	}
	return client, flags.Mesh, nil
}

// Command returns `weft diagnostics` with its sub-commands.
func Command() *cobra.Command { return command(toCluster) }

func command(open connect) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "diagnostics",
		Aliases: []string{"dg"},
		Short:   "Show what proxies and the control plane say of themselves",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(proxyMetrics(open), controllerMetrics(open), policy(open), endpoints(open), profile(open))
	return cmd
}

// exactly demands the arguments that names list.
func exactly(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) < len(names):
			return usage.Error(cmd, names[len(args)]+" is missing")
		case len(args) > len(names):
			return usage.Error(cmd, fmt.Sprintf("argument %q is one too many", args[len(names)]))
		}
		return nil
	}
}

func decode(obj *unstructured.Unstructured, into any) error {
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(obj.Object, into); err != nil {
		return fmt.Errorf("reading %s %s/%s: %w", obj.GetKind(), obj.GetNamespace(), obj.GetName(), err)
	}
	return nil
}
