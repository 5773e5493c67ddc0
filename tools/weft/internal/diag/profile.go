package diag

import (
	"context"

	"github.com/linkerd/linkerd2-proxy-api/go/destination"
	"github.com/spf13/cobra"
)

func profile(open connect) *cobra.Command {
	var pod, token string
	cmd := &cobra.Command{
		Use:     "profile ADDRESS",
		Short:   "Print the profile that a proxy is told for an address",
		Example: "  weft diagnostics profile 10.43.0.10:80",
		Args:    exactly("ADDRESS"),
		RunE: func(cmd *cobra.Command, args []string) error {
			door, mesh, err := open(cmd)
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), callTime)
			defer cancel()
			server, err := serving(ctx, door, mesh, pod, destinationPort, "the destination API")
			if err != nil {
				return err
			}
			m, err := askProfile(ctx, door, mesh, server, args[0], token)
			if err != nil {
				return explain("asking for the profile of "+args[0], err)
			}
			return readable(cmd.OutOrStdout(), "json", m)
		},
	}
	bindAsker(cmd, &pod, &token)
	return cmd
}

func bindAsker(cmd *cobra.Command, pod, token *string) {
	cmd.Flags().StringVar(token, "token", "", `who asks: JSON like {"ns":"shop","nodeName":"node-1"}`)
	cmd.Flags().StringVar(pod, "destination-pod", "", "pod of the control plane to ask (default: one that is ready)")
}

// askProfile takes the first profile; later ones are changes.
func askProfile(ctx context.Context, d Door, mesh, server, address, token string) (*destination.DestinationProfile, error) {
	conn, err := dial(d, mesh, server, destinationPort)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := destination.NewDestinationClient(conn).GetProfile(ctx, &destination.GetDestination{Path: address, ContextToken: token})
	if err != nil {
		return nil, err
	}
	return stream.Recv()
}
