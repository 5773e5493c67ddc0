package diag

import (
	"context"
	"fmt"
	"strconv"

	"github.com/linkerd/linkerd2-proxy-api/go/inbound"
	"github.com/linkerd/linkerd2-proxy-api/go/outbound"
	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	"github.com/weftmesh/weft/tools/weft/internal/kube"
	"github.com/weftmesh/weft/tools/weft/internal/usage"
)

func policy(open connect) *cobra.Command {
	var ns, pod string
	token, format := "default:diagnostics", "yaml"
	cmd := &cobra.Command{
		Use:   "policy RESOURCE PORT",
		Short: "Print the policy of a pod's port, or of a Service's",
		Long: `Print what the control plane tells a proxy: for a pod, who may connect to its port
(what its own proxy is told); for a Service, how requests to its port are routed
(what its clients' proxies are told).`,
		Example: `  weft diagnostics policy po/web-7d4b9 8080 -n shop
  weft diagnostics policy svc/web 80 -n shop -o json`,
		Args: exactly("RESOURCE", "PORT"),
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := parse(args[0])
			if err != nil {
				return err
			}
			port, err := strconv.ParseUint(args[1], 10, 16)
			switch {
			case err != nil || port == 0:
				return usage.Error(cmd, fmt.Sprintf("%q is no port", args[1]))
			case format != "yaml" && format != "json":
				return usage.Error(cmd, fmt.Sprintf("--output %q is neither yaml nor json", format))
			case r.gvr != kube.Pods && r.gvr != kube.Services:
				return usage.Error(cmd, "only pods and services have policies, not "+args[0])
			}
			door, mesh, err := open(cmd)
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), callTime)
			defer cancel()
			server, err := serving(ctx, door, mesh, pod, policyPort, "the policy API")
			if err != nil {
				return err
			}
			m, err := askPolicy(ctx, door, mesh, server, token, r, ns, uint32(port))
			if err != nil {
				return explain(fmt.Sprintf("asking for the policy of %s port %d in namespace %s", args[0], port, ns), err)
			}
			return readable(cmd.OutOrStdout(), format, m)
		},
	}
	fs := cmd.Flags()
	fs.StringVarP(&ns, "namespace", "n", "default", "namespace of the resource")
	fs.StringVar(&token, "token", token, "who asks, when it is about a Service: NAMESPACE:POD")
	fs.StringVar(&pod, "destination-pod", "", "pod of the control plane to ask (default: one that is ready)")
	fs.StringVarP(&format, "output", "o", format, "how to write the answer: yaml or json")
	return cmd
}

func askPolicy(ctx context.Context, d Door, mesh, server, token string, r resource, ns string, port uint32) (proto.Message, error) {
	conn, err := dial(d, mesh, server, policyPort)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	if r.gvr == kube.Pods {
		return inbound.NewInboundServerPoliciesClient(conn).GetPort(ctx, &inbound.PortSpec{Workload: ns + ":" + r.object, Port: port})
	}
	return outbound.NewOutboundPoliciesClient(conn).Get(ctx, &outbound.TrafficSpec{
		SourceWorkload: token,
		// Without the cluster's domain, as Linkerd asks.
		Target: &outbound.TrafficSpec_Authority{Authority: fmt.Sprintf("%s.%s.svc:%d", r.object, ns, port)},
	})
}
