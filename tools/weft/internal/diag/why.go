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
	"github.com/weftmesh/weft/tools/weft/internal/plain"
	"github.com/weftmesh/weft/tools/weft/internal/usage"
)

// explainMethod is asked by its name: the module of protos has no gRPC in it.
const explainMethod = "/weft.explain.v1.ExplainService/Explain"

// ExplainCommand returns `weft explain`.
func ExplainCommand() *cobra.Command { return why(toCluster) }

// question is what the command line asks.
type question struct {
	ns, pod, server, policyPod, policyServer string
	format                                   string
	request                                  requestFlags
	client                                   clientFlags
}

func why(open connect) *cobra.Command {
	q := question{format: "text"}
	cmd := &cobra.Command{
		Use:   "explain CLIENT DESTINATION",
		Short: "Say why a pod's proxy is told what it is told of a destination, and who may come in",
		Long: `Say why. What DESTINATION is decides what is asked:

An authority or an address (web.shop.svc.cluster.local:80, 10.43.0.10:80): in order,
which objects and rules make the answer that the client's proxy gets: which endpoints
are used, which are left out and why, which profile counts; then which route takes the
client's request (--path and its companions), where that goes, and why the other routes
do not take it.

A port of a workload (deploy/books:8080): whether the client may come in there, which
rule lets it in, why the others do not, and which route its request takes.

It is worked out by replicas of the destination and policy services, from their own
tables. CLIENT is a resource of --namespace, KIND/NAMESPACE/NAME, or - for somebody of
whom only --client-address and --client-identity are known.`,
		Example: `  weft explain deploy/web books.shop.svc.cluster.local:80 -n shop --path /v2/list
  weft explain po/web-7d4b9 10.43.0.10:80 -n shop -o json
  weft explain deploy/web deploy/books:8080 -n shop --method POST --path /add
  weft explain - deploy/shop/books:8080 --client-address 192.0.2.7`,
		Args: exactly("CLIENT", "DESTINATION"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if q.format != "text" && q.format != "json" {
				return usage.Error(cmd, fmt.Sprintf("--output %q is neither text nor json", q.format))
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), callTime)
			defer cancel()
			if strings.Contains(args[1], "/") {
				return q.inbound(ctx, cmd, open, args[0], args[1])
			}
			return q.outbound(ctx, cmd, open, args[0], args[1])
		},
	}
	fs := cmd.Flags()
	fs.StringVarP(&q.ns, "namespace", "n", "default", "namespace of client and workload, where they do not say theirs")
	fs.StringVar(&q.pod, "destination-pod", "", "pod of the control plane to ask (default: one that is ready)")
	fs.StringVar(&q.policyPod, "policy-pod", "", "pod of the control plane to ask about policies (default: one that is ready)")
	fs.StringVar(&q.server, "server", "", "HOST:PORT of a destination service to ask, without Kubernetes; CLIENT is then a pod")
	fs.StringVar(&q.policyServer, "policy-server", "", "HOST:PORT of a policy service to ask, without Kubernetes")
	fs.StringVarP(&q.format, "output", "o", q.format, "how to write the answer: text or json")
	q.request.bind(fs)
	q.client.bind(fs)
	return cmd
}

// outbound asks the destination service for the steps, and the policy service for
// the routes.
func (q *question) outbound(ctx context.Context, cmd *cobra.Command, open connect, client, destination string) error {
	if client == "-" {
		return usage.Error(cmd, fmt.Sprintf("a client of %s must be a workload, whose proxy is asked about: - only comes to a port of one", destination))
	}
	ns, r, err := q.resource(client)
	if err != nil {
		return err
	}
	request, err := q.request.read(cmd)
	if err != nil {
		return err
	}
	req := &explainv1.ExplainRequest{ClientNamespace: ns, Destination: destination}
	conn, err := reach(ctx, cmd, open, q.server, q.pod, ns, r, req)
	if err != nil {
		return err
	}
	defer conn.Close()
	resp := &explainv1.ExplainResponse{}
	if err := conn.Invoke(ctx, explainMethod, req, resp); err != nil {
		return explain("asking why "+client+" is told what it is of "+destination, err)
	}
	routes, reason := q.routes(ctx, cmd, open, &explainv1.ExplainOutboundRequest{
		SourceWorkload: req.GetClientNamespace() + ":" + req.GetClientPod(), Target: destination, Request: request,
	})
	if q.format == "json" {
		return writeBoth(cmd.OutOrStdout(), resp, routes, reason)
	}
	if err := writeSteps(cmd.OutOrStdout(), resp); err != nil {
		return err
	}
	return writeRoutes(cmd.OutOrStdout(), routes, reason)
}

// resource reads KIND/NAME or KIND/NAMESPACE/NAME.
func (q *question) resource(text string) (ns string, r resource, err error) {
	ns = q.ns
	if parts := strings.Split(text, "/"); len(parts) == 3 {
		ns, text = parts[1], parts[0]+"/"+parts[2]
	}
	r, err = parse(text)
	return ns, r, err
}

// reach connects to a replica and fills in which pod asks.
func reach(ctx context.Context, cmd *cobra.Command, open connect, server, pod, ns string, client resource, req *explainv1.ExplainRequest) (*grpc.ClientConn, error) {
	if server != "" {
		if client.gvr != kube.Pods {
			return nil, usage.Error(cmd, "with --server, CLIENT must be a pod: without Kubernetes nothing else has pods")
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
		fmt.Fprintf(table, "%d.\t%s\t%s\n", i+1, plain.Line(s.GetAbout()), plain.Line(s.GetRule()))
		for _, o := range s.GetObjects() {
			fmt.Fprintf(table, "\t\t  %s\n", plain.Line(objectText(o)))
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
