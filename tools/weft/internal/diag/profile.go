package diag

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/linkerd/linkerd2-proxy-api/go/destination"
	"github.com/spf13/cobra"

	"github.com/weftmesh/weft/tools/weft/internal/plain"
	"github.com/weftmesh/weft/tools/weft/internal/usage"
)

func profile(open connect) *cobra.Command {
	var pod, token string
	format := "json"
	cmd := &cobra.Command{
		Use:     "profile ADDRESS",
		Short:   "Print the profile that a proxy is told for an address",
		Example: "  weft diagnostics profile 10.43.0.10:80\n  weft diagnostics profile web.shop.svc.cluster.local:80 -o table",
		Args:    exactly("ADDRESS"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if format != "json" && format != "table" {
				return usage.Error(cmd, fmt.Sprintf("--output %q is neither json nor table", format))
			}
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
			if format == "table" {
				return writeProfile(cmd.OutOrStdout(), m)
			}
			return readable(cmd.OutOrStdout(), "json", m)
		},
	}
	bindAsker(cmd, &pod, &token)
	cmd.Flags().StringVarP(&format, "output", "o", format, "how to write the answer: json or table")
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

// writeProfile writes a profile as a table: what holds for all of it, then its
// routes and where else requests go.
func writeProfile(w io.Writer, p *destination.DestinationProfile) error {
	var out bytes.Buffer
	table := tabwriter.NewWriter(&out, 0, 0, 3, ' ', 0)
	line := func(name, format string, args ...any) {
		fmt.Fprintf(table, "%s\t%s\n", name, plain.Line(fmt.Sprintf(format, args...)))
	}
	line("NAME", "%s", cmp.Or(p.GetFullyQualifiedName(), "-"))
	line("OPAQUE", "%v", p.GetOpaqueProtocol())
	if b := p.GetRetryBudget(); b != nil {
		line("RETRIES", "%v%% and %d a second, counted over %v", b.GetRetryRatio()*100, b.GetMinRetriesPerSecond(), b.GetTtl().AsDuration())
	}
	if e := p.GetEndpoint(); e != nil {
		one := endpointOf(e, nil)
		line("ENDPOINT", "%s:%d %s", one.IP, one.Port, one.Pod)
	}
	for _, d := range p.GetDstOverrides() {
		line("GOES TO", "%s weight %d", d.GetAuthority(), d.GetWeight())
	}
	for _, r := range p.GetRoutes() {
		var facts []string
		if r.GetIsRetryable() {
			facts = append(facts, "retryable")
		}
		if r.GetTimeout() != nil {
			facts = append(facts, "timeout "+r.GetTimeout().AsDuration().String())
		}
		line("ROUTE", "%s", strings.Join(append([]string{cmp.Or(r.GetMetricsLabels()["route"], "-")}, facts...), ", "))
	}
	if err := table.Flush(); err != nil {
		return fmt.Errorf("laying out the profile: %w", err)
	}
	return write(w, "", out.Bytes())
}
