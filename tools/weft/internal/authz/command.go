package authz

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/weftmesh/weft/services/kit/say"
	"github.com/weftmesh/weft/tools/weft/internal/diag"
	"github.com/weftmesh/weft/tools/weft/internal/kube"
	"github.com/weftmesh/weft/tools/weft/internal/usage"
)

const (
	callTime = 30 * time.Second
)

var (
	servers        = schema.GroupVersionResource{Group: policyGroup, Version: "v1beta3", Resource: "servers"}
	authorizations = schema.GroupVersionResource{Group: policyGroup, Version: "v1beta1", Resource: "serverauthorizations"}
	policies       = schema.GroupVersionResource{Group: policyGroup, Version: "v1alpha1", Resource: "authorizationpolicies"}
)

// routeKinds are the routes that a policy may be about.
var routeKinds = []struct {
	kind string
	at   schema.GroupVersionResource
}{
	{"HTTPRoute", schema.GroupVersionResource{Group: policyGroup, Version: "v1beta3", Resource: "httproutes"}},
	{"HTTPRoute", schema.GroupVersionResource{Group: "gateway.networking.k8s.io", Version: "v1", Resource: "httproutes"}},
	{"GRPCRoute", schema.GroupVersionResource{Group: "gateway.networking.k8s.io", Version: "v1", Resource: "grpcroutes"}},
}

// Command returns `weft authz`.
func Command() *cobra.Command {
	return command(func(cmd *cobra.Command) (diag.Door, error) { return kube.From(cmd).Connect() })
}

func command(open func(*cobra.Command) (diag.Door, error)) *cobra.Command {
	ns := ""
	cmd := &cobra.Command{
		Use:   "authz RESOURCE",
		Short: "List the authorizations that are about a workload",
		Long: `List the authorizations that are about the pods of a workload: which route of which
Server they are for, and which AuthorizationPolicy or ServerAuthorization it is.
A * stands for all routes.`,
		Example: `  weft authz -n shop deploy/web`,
		Args: func(cmd *cobra.Command, args []string) error {
			switch len(args) {
			case 1:
				return nil
			case 0:
				return usage.Error(cmd, "RESOURCE is missing")
			}
			return usage.Error(cmd, fmt.Sprintf("argument %q is one too many", args[1]))
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			door, err := open(cmd)
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), callTime)
			defer cancel()
			w, err := read(ctx, door, ns, args[0])
			if err != nil {
				return err
			}
			rows := w.rows()
			if len(rows) == 0 {
				_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "No authorization is about the pods of %s in namespace %s: the default policy holds, or nobody is let in.\n", args[0], ns)
			}
			return write(cmd.OutOrStdout(), rows)
		},
	}
	cmd.Flags().StringVarP(&ns, "namespace", "n", "default", "namespace of the resource")
	return cmd
}

// read reads what is written in the namespace of a workload's pods.
func read(ctx context.Context, door diag.Door, ns, resource string) (*world, error) {
	pods, err := diag.PodsOf(ctx, door, ns, resource)
	if err != nil {
		return nil, err
	}
	w := &world{pods: pods}
	if len(pods) == 0 {
		return nil, &say.Problem{What: fmt.Sprintf("%s in namespace %s has no pods", resource, ns), Next: "name a workload that runs"}
	}
	ns = pods[0].Namespace // of a resource that is a namespace itself
	if w.servers, err = list[server](ctx, door, servers, ns); err != nil {
		return nil, err
	}
	if w.authorizations, err = list[serverAuthorization](ctx, door, authorizations, ns); err != nil {
		return nil, err
	}
	if w.policies, err = list[authorizationPolicy](ctx, door, policies, ns); err != nil {
		return nil, err
	}
	for _, k := range routeKinds {
		routes, err := list[route](ctx, door, k.at, ns)
		if err != nil {
			return nil, err
		}
		for _, r := range routes {
			w.routes = append(w.routes, kindRoute{k.at.Group, k.kind, r})
		}
	}
	return w, nil
}

// list reads all objects of a kind; a kind that the cluster does not have has
// none.
func list[T any](ctx context.Context, door diag.Door, gvr schema.GroupVersionResource, ns string) ([]T, error) {
	objects, err := door.List(ctx, gvr, ns, "")
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	out := make([]T, len(objects))
	for i := range objects {
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(objects[i].Object, &out[i]); err != nil {
			return nil, fmt.Errorf("reading %s %s/%s: %w", objects[i].GetKind(), objects[i].GetNamespace(), objects[i].GetName(), err)
		}
	}
	return out, nil
}

func write(w io.Writer, rows []Row) error {
	var b strings.Builder
	table := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "ROUTE\tSERVER\tAUTHORIZATION_POLICY\tSERVER_AUTHORIZATION")
	for _, r := range rows {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", cmp.Or(r.Route, "*"), r.Server, cmp.Or(r.AuthorizationPolicy, "-"), cmp.Or(r.ServerAuthorization, "-"))
	}
	_ = table.Flush() // a strings.Builder takes everything
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("writing the authorizations: %w", err)
	}
	return nil
}
