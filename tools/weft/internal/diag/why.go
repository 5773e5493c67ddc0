package diag

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	explainv1 "github.com/weftmesh/weft/proto/gen/weft/explain/v1"
	"github.com/weftmesh/weft/services/kit/say"
	"github.com/weftmesh/weft/tools/weft/internal/kube"
)

// explainMethod is asked by its name: the module of protos has no gRPC in it.
const explainMethod = "/weft.explain.v1.ExplainService/Explain"

// ExplainCommand returns `weft explain`.
func ExplainCommand() *cobra.Command { return why(toCluster) }

func why(open connect) *cobra.Command {
	var ns, pod, server string
	format := "text"
	cmd := &cobra.Command{
		Use:   "explain CLIENT DESTINATION",
		Short: "Say why a pod's proxy is told what it is told of a destination",
		Long: `Say, in order, which objects and rules make the answer that a pod's proxy gets for a
destination: which endpoints are used, which are left out and why, and which profile
counts. It is worked out by a replica of the destination service, from its own tables.`,
		Example: `  weft explain deploy/web books.shop.svc.cluster.local:80 -n shop
  weft explain po/web-7d4b9 10.43.0.10:80 -n shop -o json`,
		Args: exactly("CLIENT", "DESTINATION"),
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := parse(args[0])
			if err != nil {
				return err
			}
			if format != "text" && format != "json" {
				return usage(cmd, fmt.Sprintf("--output %q is neither text nor json", format))
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), callTime)
			defer cancel()
			req := &explainv1.ExplainRequest{ClientNamespace: ns, Destination: args[1]}
			conn, err := reach(ctx, cmd, open, server, pod, ns, r, req)
			if err != nil {
				return err
			}
			defer conn.Close()
			resp := &explainv1.ExplainResponse{}
			if err := conn.Invoke(ctx, explainMethod, req, resp); err != nil {
				return explain("asking why "+args[0]+" is told what it is of "+args[1], err)
			}
			if format == "json" {
				return readable(cmd.OutOrStdout(), format, resp)
			}
			return writeSteps(cmd.OutOrStdout(), resp)
		},
	}
	fs := cmd.Flags()
	fs.StringVarP(&ns, "namespace", "n", "default", "namespace of the client")
	fs.StringVar(&pod, "destination-pod", "", "pod of the control plane to ask (default: one that is ready)")
	fs.StringVar(&server, "server", "", "HOST:PORT of a destination service to ask, without Kubernetes; CLIENT is then a pod")
	fs.StringVarP(&format, "output", "o", format, "how to write the answer: text or json")
	return cmd
}

// reach connects to a replica and fills in which pod asks.
func reach(ctx context.Context, cmd *cobra.Command, open connect, server, pod, ns string, client resource, req *explainv1.ExplainRequest) (*grpc.ClientConn, error) {
	if server != "" {
		if client.gvr != kube.Pods {
			return nil, usage(cmd, "with --server, CLIENT must be a pod: without Kubernetes nothing else has pods")
		}
		req.ClientPod = client.object
		conn, err := grpc.NewClient(server, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithNoProxy())
		if err != nil {
			return nil, fmt.Errorf("making a client of %s: %w", server, err)
		}
		return conn, nil
	}
	door, mesh, err := open(cmd)
	if err != nil {
		return nil, err
	}
	pods, err := podsOf(ctx, door, ns, client)
	if err != nil {
		return nil, err
	}
	if len(pods) == 0 {
		return nil, &say.Problem{What: fmt.Sprintf("%s %s/%s has no pods", client.name, ns, client.object), Next: "name a client that runs"}
	}
	// The pods of one workload may be told different things, by zone and node; the
	// answer names the one that was taken.
	req.ClientNamespace, req.ClientPod = pods[0].Namespace, pods[0].Name
	named, err := serving(ctx, door, mesh, pod, destinationPort, "the destination API")
	if err != nil {
		return nil, err
	}
	return dial(door, mesh, named, destinationPort)
}

// writeSteps writes an explanation as numbered lines, each followed by what it
// was read from.
func writeSteps(w io.Writer, resp *explainv1.ExplainResponse) error {
	var out bytes.Buffer
	table := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	for i, s := range resp.GetSteps() {
		fmt.Fprintf(table, "%d.\t%s\t%s\n", i+1, clean(s.GetAbout()), clean(s.GetRule()))
		for _, o := range s.GetObjects() {
			fmt.Fprintf(table, "\t\t  %s\n", clean(objectText(o)))
		}
	}
	if err := table.Flush(); err != nil {
		return fmt.Errorf("laying out the steps: %w", err)
	}
	if n := resp.GetMore(); n > 0 {
		fmt.Fprintf(&out, "and %d steps more\n", n)
	}
	fmt.Fprintf(&out, "as of epoch %d, sequence %d of the log", resp.GetEpoch(), resp.GetSeq())
	if resp.GetStale() {
		fmt.Fprintf(&out, ", which has been silent for %s", time.Duration(resp.GetAgeNs()).Round(time.Second))
	}
	out.WriteByte('\n')
	return write(w, "", out.Bytes())
}

// objectText names an object: kind, name and UID, as far as they are known.
func objectText(o *explainv1.Object) string {
	name := o.GetName()
	if o.GetNamespace() != "" {
		name = o.GetNamespace() + "/" + name
	}
	text := []string{o.GetKind(), name}
	if o.GetUid() != "" {
		text = append(text, o.GetUid())
	}
	if o.GetCluster() != "" {
		text = append(text, "in cluster "+o.GetCluster())
	}
	return strings.Join(text, " ")
}
